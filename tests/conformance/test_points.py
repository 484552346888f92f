"""Every one of the 65 points of the conformance list has a test."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_point_has_a_test() -> None:
    tested: set[int] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        tested |= {
            int(number) for number in re.findall(r"^@pytest\.mark\.point\((\d+)\)", file.read_text(), re.MULTILINE)
        }
    assert tested == set(range(1, 66))
