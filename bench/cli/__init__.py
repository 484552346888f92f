"""How long the commands that a user types all day take."""
