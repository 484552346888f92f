"""The event that a decision asks for."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Event(NamedTuple):
    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
    # Identifies an event that every look would repeat: it is recorded only once for each value.
    once: tuple[str, ...] = ()
