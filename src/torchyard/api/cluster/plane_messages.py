"""Reasons and messages of events about the plane itself."""

from __future__ import annotations

PART_FAILED = "PartFailed"


def part_failed(part: str, error: str, delay: float) -> str:
    return f"{part} failed and is started again in {delay:.1f} s: {error}"
