"""`python -m torchyard.elastic`."""

import sys

from torchyard.elastic.cli import main

if __name__ == "__main__":
    sys.exit(main())
