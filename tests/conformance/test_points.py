"""The list of 65 points is whole: each has its tests, and those that wait for something are named here."""

from __future__ import annotations

import re
from pathlib import Path

# What cannot be judged on a server without a node; the node agent's own tests take over from here.
PENDING = {
    18: "log, exec, attach and port-forward of a running pod (what is refused without one is tested)",
    21: "the node agent ends a graceful deletion (the test plays its part)",
    64: "the heartbeat Lease of a node",
}


def test_every_point_has_a_test() -> None:
    found: set[int] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        found |= {int(number) for number in re.findall(r"def test_(\d\d)_", file.read_text())}
    assert found == set(range(1, 66))


def test_what_is_pending_is_among_the_points() -> None:
    assert PENDING.keys() <= set(range(1, 66))
