"""`python -m torchyard.cli`: the same as `yard`."""

from torchyard.cli.main import main

main()
