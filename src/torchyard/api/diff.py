"""The difference between two objects, for messages about fields that must not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.api.field_errors import format_value
from torchyard.api.schema.types import Type

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


def semantically_equal(old: Any, new: Any, type: Type | None = None) -> bool:
    """Whether the server treats both values as equal.

    With the type of a built-in kind, an empty object or string differs from an absent one where Go has a pointer: an
    empty `namespaceSelector` selects all namespaces, and an absent one selects none.
    """
    return next(_walk(old, new, "", type), None) is None


def _walk(old: Any, new: Any, path: str, type: Type | None = None) -> Iterator[tuple[str, Any, Any]]:
    if old == new or (not old and not new and old in _EMPTY and new in _EMPTY and not _is_pointer(type)):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = type and (type.fields.get(key) or type.values)
            yield from _walk(old.get(key), new.get(key), f"{path}.{key}" if path else key, below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _walk(was, now, f"{path}[{index}]", type and type.items)
    else:
        yield path, old, new


def _is_pointer(type: Type | None) -> bool:
    """Whether the value may be absent although it is empty; lists and maps are no pointers."""
    return type is not None and type.zero == "keep" and type.shape not in ("list", "map")


_EMPTY: tuple[Any, ...] = (None, "", [], {})
