"""`python -m bench.elastic [BENCHMARK ...]`: run some of the benchmarks, or all."""

from __future__ import annotations

import sys

from bench.elastic.coordination import c8, c12, c15
from bench.elastic.exactly_once import c7
from bench.elastic.frameworks import c17, c18
from bench.elastic.overhead import c2, c3, c10, c16
from bench.elastic.recovery import c1, c4, c5, c6, c9, c11, c11w, c13
from bench.elastic.tutorial import c14

BENCHMARKS = {
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
    "C11w": c11w,
    "C12": c12,
    "C13": c13,
    "C14": c14,
    "C15": c15,
    "C16": c16,
    "C17": c17,
    "C18": c18,
}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmarks: {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
        return 2
    met = [BENCHMARKS[name]() for name in names]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
