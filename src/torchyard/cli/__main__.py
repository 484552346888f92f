"""`python -m torchyard.cli` is the same as `yard`."""

from torchyard.cli.main import main

main()
