"""The difference between two objects, for messages about fields that must not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.api.field_errors import format_value

_MAX_LINES = 8


def format_diff(old: Any, new: Any) -> str:
    """Return one line per changed field, with the old value after `- ` and the new one after `+ `.

    An absent field, null and an empty value are equal, because the server writes them alike. Equal objects give "".
    """
    changes = list(_walk(old, new, ""))
    lines = [f"  {path or '.'}: - {format_value(was)} + {format_value(now)}" for path, was, now in changes[:_MAX_LINES]]
    if len(changes) > _MAX_LINES:
        lines.append(f"  … and {len(changes) - _MAX_LINES} more")
    return "\n".join(lines)


def semantically_equal(old: Any, new: Any) -> bool:
    """Whether the server treats both values as equal."""
    return next(_walk(old, new, ""), None) is None


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new or (not old and not new and old in _EMPTY and new in _EMPTY):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _walk(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _walk(was, now, f"{path}[{index}]")
    else:
        yield path, old, new


_EMPTY: tuple[Any, ...] = (None, "", [], {})
