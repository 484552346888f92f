"""Where a value stands: (parent, step) pairs, written out only when there is something to tell."""

from __future__ import annotations

from typing import Any

ValuePath = tuple[Any, str | int] | None


def format_path(path: ValuePath) -> str:
    """`spec.items[0].name`; the keys of maps are written as fields are."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")
