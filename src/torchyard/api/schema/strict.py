"""Strict decoding: unknown and duplicate fields, in document order.

Nearly all documents have neither, so only the detection is optimized, not the naming of the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import orjson

from torchyard.api.schema.types import Type

# As in upstream, further errors are dropped.
MAX_ERRORS = 100

# The path of a value: that of its parent, and its key or index.
_Path = tuple[Any, str | int] | None


class Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of all its key-value pairs, including duplicates."""


def may_have_duplicates(body: bytes, obj: Any) -> bool:
    """Whether a JSON text may have duplicate fields, given its parsed form. Never returns False wrongly.

    Duplicate fields are missing in the parsed object, so its encoding has fewer quotation marks. Only quotation marks
    that the text escapes by number could hide this.
    """
    return body.count(b'"') != orjson.dumps(obj).count(b'"') or b"\\u0022" in body


def errors_in(body: bytes, type: Type) -> list[str]:
    """Return `unknown field "x"` and `duplicate field "y"` of a JSON text, with full paths."""
    return errors_of(json.loads(body, object_pairs_hook=Pairs), type)


def duplicates_in(body: bytes) -> list[str]:
    """Return `duplicate field "y"` of a JSON text without a known type."""
    errors: dict[str, None] = {}
    _walk_untyped(json.loads(body, object_pairs_hook=Pairs), None, errors)
    return list(errors)


def errors_of(document: Any, type: Type) -> list[str]:
    """Return `unknown field "x"` of a parsed document, which cannot have duplicate fields."""
    errors: dict[str, None] = {}
    _walk(document, type, None, errors)
    return list(errors)


def _walk(node: Any, type: Type, path: _Path, errors: dict[str, None]) -> None:
    match type.shape:
        case "object" | "map" if isinstance(node, dict | Pairs):
            seen: set[str] = set()
            for key, value in _pairs(node):
                child = type.fields.get(key) if type.shape == "object" else type.values
                if child is None:
                    if not type.preserve_unknown:
                        _add(errors, "unknown", (path, key))
                    continue
                if key in seen:
                    _add(errors, "duplicate", (path, key))
                seen.add(key)
                _walk(value, child, (path, key), errors)
        case "list" if isinstance(node, list) and type.items:
            for index, item in enumerate(node):
                _walk(item, type.items, (path, index), errors)


def _walk_untyped(node: Any, path: _Path, errors: dict[str, None]) -> None:
    if isinstance(node, Pairs):
        seen: set[str] = set()
        for key, value in node:
            if key in seen:
                _add(errors, "duplicate", (path, key))
            seen.add(key)
            _walk_untyped(value, (path, key), errors)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            _walk_untyped(item, (path, index), errors)


def _add(errors: dict[str, None], adjective: str, path: _Path) -> None:
    """Add an error, unless there are enough. Only here paths become texts: a body may have a million fields."""
    if len(errors) < MAX_ERRORS:
        errors[f'{adjective} field "{_format_path(path)}"'] = None


def _format_path(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def _pairs(node: dict[str, Any] | Pairs) -> Iterable[tuple[str, Any]]:
    return node if isinstance(node, Pairs) else node.items()
