"""Lists that promise unique items: x-kubernetes-list-type `set` and `map`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.node import SchemaNode, hashable_json


def duplicate_errors(value: Any, node: SchemaNode, path: str = "") -> list[FieldError]:
    """The items that repeat an earlier one, each value told once."""
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
            errs += _repeated(value, path)
        elif node.list_type == "map":
            errs += _repeated_keys(value, node, path)
        if node.items is not None:
            for index, item in enumerate(value):
                errs += duplicate_errors(item, node.items, f"{path}[{index}]")
    return errs


def has_repeated(value: list[Any], node: SchemaNode) -> bool:
    """Whether a list that promises unique items has others; what is inside of them aside."""
    return bool(_repeated(value, "") if node.list_type == "set" else _repeated_keys(value, node, ""))


def _repeated(value: list[Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: dict[Hashable, int] = {}
    for index, item in enumerate(value):
        key = hashable_json(item)
        times = seen[key] = seen.get(key, 0) + 1
        if times == 2:
            errs.append(field_errors.duplicate(f"{path}[{index}]", _sorted(item)))
    return errs


def _repeated_keys(value: list[Any], node: SchemaNode, path: str) -> list[FieldError]:
    if len(node.list_keys) == 1 and _are_apart(value, node.list_keys[0]):
        return []
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return [field_errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    return _repeated([{key: item[key] for key in node.list_keys if key in (item or ())} for item in value], path)


def _are_apart(value: list[Any], key: str) -> bool:
    """Whether all items have a text of their own under the key, as nearly all such lists do."""
    seen: set[str] = set()
    for item in value:
        text = item.get(key) if type(item) is dict else None
        if type(text) is not str or text in seen:
            return False
        seen.add(text)
    return True


def _sorted(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value
