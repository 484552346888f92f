"""The list of 65 points is whole: each has its tests."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_point_has_a_test() -> None:
    found: set[int] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        found |= {int(number) for number in re.findall(r"def test_(\d\d)_", file.read_text())}
    assert found == set(range(1, 66))
