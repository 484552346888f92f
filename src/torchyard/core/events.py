"""One thing to tell about an object."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Event(NamedTuple):
    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
    # What it is about, if looking again would tell it again: then it is told once.
    once: tuple[str, ...] = ()
