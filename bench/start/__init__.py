"""How long a plane takes from the command to the first answer."""
