"""Changes of objects, for cases about updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.api.objects import Object


def set_(path: str, value: Any) -> Callable[[Object], None]:
    """Return a change that sets the field at a path such as `spec.containers.0.image`, or removes it for None."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]

    def change(obj: Object) -> None:
        target: Any = obj
        for part in parents:
            target = target[part] if isinstance(part, int) else target.setdefault(part, {})
        if value is None:
            target.pop(last, None)
        else:
            target[last] = value

    return change


def both(*changes: Callable[[Object], None]) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        for apply in changes:
            apply(obj)

    return change
