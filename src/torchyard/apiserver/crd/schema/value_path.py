"""The path of a value as (parent, step) pairs, formatted only when there is an error."""

from __future__ import annotations

from typing import Any

ValuePath = tuple[Any, str | int] | None


def format_path(path: ValuePath) -> str:
    """The path as `spec.items[0].name`; map keys look like fields."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")
