"""Assembly of the one-machine plane: which parts run in this process, settings, start, stop."""
