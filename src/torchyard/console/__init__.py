"""The web console. Decides nothing."""
