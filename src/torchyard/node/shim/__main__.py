"""`python -I -S …/shim/__main__.py ROOT`: become the zygote of the node whose state is under ROOT."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Started by file name and without site-packages: that halves start-up time and memory.
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    if source not in sys.path:
        sys.path.insert(0, source)
    from torchyard.node.shim import sealed_program

    sealed_program.ensure(["-I", "-S", *sys.argv])
    from torchyard.node.shim.zygote import main

    main(sys.argv[1])
