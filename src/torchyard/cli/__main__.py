"""`python -m torchyard.cli` is the same as `yard`."""

from torchyard.cli import main

main()
