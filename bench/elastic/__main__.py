"""`python -m bench.elastic BAR ...`: run some of the bars, or all of them."""

from __future__ import annotations

import sys

from bench.elastic.coordination import c8, c12, c15
from bench.elastic.exactly_once import c7
from bench.elastic.overhead import c2, c3, c10
from bench.elastic.recovery import c1, c4, c5, c6, c9, c11, c13
from bench.elastic.tutorial import c14

BARS = {
    "C1": c1,
    "C2": c2,
    "C3": c3,
    "C4": c4,
    "C5": c5,
    "C6": c6,
    "C7": c7,
    "C8": c8,
    "C9": c9,
    "C10": c10,
    "C11": c11,
    "C12": c12,
    "C13": c13,
    "C14": c14,
    "C15": c15,
}


def main() -> int:
    asked = sys.argv[1:] or list(BARS)
    unknown = [name for name in asked if name not in BARS]
    if unknown:
        print(f"no such bar: {', '.join(unknown)}; there are {', '.join(BARS)}")
        return 2
    met = [BARS[name]() for name in asked]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
