"""The `yard` command line: parses, calls, prints. Decides nothing."""
