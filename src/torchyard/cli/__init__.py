"""The `yard` command line: parses, calls, prints. Decides nothing."""

from torchyard.cli.main import main

__all__ = ["main"]
