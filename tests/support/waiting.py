"""Waiting for what another process does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 30.0


def eventually(claim: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Returns as soon as the claim holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:.0f} s"
        time.sleep(0.02)
