"""How much the tests try: enough to notice a regression, or everything.

`TORCHYARD_TESTS=full` runs every client version, the long fuzz run and the long crash test.
"""

from __future__ import annotations

import os

FULL = os.environ.get("TORCHYARD_TESTS") == "full"


def rounds(usual: int, full: int) -> int:
    """Return how often to repeat something random."""
    return full if FULL else usual
