"""The name that a misspelled one probably means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to `name`, or that begins with it; empty if there is none."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    if not matches and name:
        matches = [candidate for candidate in by_lower if candidate.startswith(f"{name.lower()}-")]
    return by_lower[matches[0]] if matches else ""
