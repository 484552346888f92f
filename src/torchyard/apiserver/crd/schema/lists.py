"""Uniqueness of list items: x-kubernetes-list-type `set` and `map`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.node import SchemaNode, hashable_json


def duplicate_errors(value: Any, node: SchemaNode, path: str = "") -> list[FieldError]:
    """Errors for duplicate items, one per value."""
    if not node.unique_lists_below:
        return []
    errs: list[FieldError] = []
    if isinstance(value, dict):
        for name, sub_value in value.items():
            sub = node.properties.get(name)
            if sub is not None:
                errs += duplicate_errors(sub_value, sub, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                errs += duplicate_errors(sub_value, node.additional, f"{path}[{name}]")
    elif isinstance(value, list):
        if node.list_type == "set":
            errs += _duplicates(value, path)
        elif node.list_type == "map":
            errs += _duplicate_keys(value, node, path)
        if node.items is not None:
            for index, item in enumerate(value):
                errs += duplicate_errors(item, node.items, f"{path}[{index}]")
    return errs


def has_duplicates(value: list[Any], node: SchemaNode) -> bool:
    """Whether a set or map list has duplicate items; nested lists are not checked."""
    return bool(_duplicates(value, "") if node.list_type == "set" else _duplicate_keys(value, node, ""))


def _duplicates(value: list[Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    counts: dict[Hashable, int] = {}
    for index, item in enumerate(value):
        key = hashable_json(item)
        times = counts[key] = counts.get(key, 0) + 1
        if times == 2:
            errs.append(field_errors.duplicate(f"{path}[{index}]", _sorted(item)))
    return errs


def _duplicate_keys(value: list[Any], node: SchemaNode, path: str) -> list[FieldError]:
    if len(node.list_keys) == 1 and _have_distinct_keys(value, node.list_keys[0]):
        return []
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return [field_errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    return _duplicates([{key: item[key] for key in node.list_keys if key in (item or ())} for item in value], path)


def _have_distinct_keys(value: list[Any], key: str) -> bool:
    """Whether all items have distinct strings under the key: the common case, checked fast."""
    texts: set[str] = set()
    for item in value:
        text = item.get(key) if type(item) is dict else None
        if type(text) is not str or text in texts:
            return False
        texts.add(text)
    return True


def _sorted(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value
