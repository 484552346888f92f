"""Validates an applied object against its type. The messages are structured-merge-diff's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.api.go_format import format_sharp_v, format_type, format_v
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.path_elements import UnkeyedItemError, format_step, item_step
from torchyard.apiserver.apply.values import ANY


def schema_mismatch(obj: Any, type: Type) -> str | None:
    """The schema errors of the object as one text; None without any."""
    messages = list(_mismatches(obj, type, ""))
    if not messages:
        return None
    if len(messages) == 1:
        return messages[0]
    return "\n  ".join(["errors:", *messages])


def _mismatches(value: Any, type: Type, path: str) -> Iterator[str]:
    if value is None or type.shape == "any":
        return
    match type.shape:
        case "object" | "map":
            if isinstance(value, dict):
                yield from _fields(value, type, path)
            else:
                yield _with_path(path, f"expected map, got &{{{format_v(value)}}}")
        case "list":
            if isinstance(value, list):
                yield from _items(value, type, path)
            else:
                yield _with_path(path, f"expected list, got &{{{format_v(value)}}}")
        case _:
            error = _scalar(value, type)
            if error:
                yield _with_path(path, error)


def _fields(value: dict[str, Any], type: Type, path: str) -> Iterator[str]:
    for key, inner in value.items():
        field = type.fields.get(key) if type.shape == "object" else type.values
        if field is None:
            if type.shape == "object" and type.fields and not type.preserve_unknown:
                yield _with_path(f"{path}.{key}", "field not declared in schema")
                return
            field = ANY
        yield from _mismatches(inner, field, f"{path}.{key}")


def _items(value: list[Any], type: Type, path: str) -> Iterator[str]:
    item_type = type.items or ANY
    if type.list_type == "atomic":
        for index, item in enumerate(value):
            yield from _mismatches(item, item_type, f"{path}[{index}]")
        return
    steps: set[str] = set()
    for index, item in enumerate(value):
        try:
            step = item_step(item, type)
        except UnkeyedItemError as error:
            yield _with_path(path, f"element {index}: {error}")
            return
        if step in steps:
            yield _with_path(path, f"duplicate entries for key {format_step(step)}")
        steps.add(step)
        yield from _mismatches(item, item_type, path + format_step(step))


def _scalar(value: Any, type: Type) -> str | None:
    if type.shape == "int-or-string" or type.format == "quantity":
        if isinstance(value, dict | list):
            return f"expected any scalar, got &{{{format_v(value)}}}"
    elif type.shape == "string":
        if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{format_sharp_v(value)}}}"
    elif type.shape == "boolean":
        if not isinstance(value, bool):
            return f"expected boolean, got &{{{format_v(value)}}}"
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected numeric (int or float), got {format_type(value)}"
    return None


def _with_path(path: str, error: str) -> str:
    return f"{path}: {error}" if path else error
