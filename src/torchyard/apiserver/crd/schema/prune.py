"""Dropping what a schema does not name, and the nulls it does not allow.

A field a schema does not specify is removed from the object before it is stored, and reported, so that strict
clients can be told about it.
"""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.crd.schema.node import META_FIELDS, Node

Object = dict[str, Any]

# Integral floats print as integers in Go, up to the largest integer a float holds exactly.
_EXACT = float(2**53)


def prune(obj: Object, root: Node, *, keep: frozenset[str] = META_FIELDS) -> list[str]:
    """Remove unspecified fields in place; the paths of those removed. `keep` names root fields that are not ours."""
    unknown: list[str] = []
    for name in list(obj):
        if name in keep:
            continue
        sub = root.properties.get(name)
        if sub is not None:
            obj[name] = _pruned(obj[name], sub, name, unknown)
        elif not root.preserve:
            del obj[name]
            unknown.append(name)
    unknown.sort()
    return unknown


def prune_value(value: Any, node: Node) -> Any:
    """A value without what its schema does not specify; the value itself is changed."""
    return _pruned(value, node, "", [])


def _pruned(value: Any, node: Node | None, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        _prune_map(value, node, path, unknown)
    elif isinstance(value, list):
        if node is None or node.items is not None or not node.preserve:
            items = None if node is None else node.items
            for index, item in enumerate(value):
                value[index] = _pruned(item, items, f"{path}[{index}]", unknown)
    elif type(value) is float and value.is_integer() and -_EXACT < value < _EXACT:
        return int(value)
    return value


def _prune_map(value: Object, node: Node | None, path: str, unknown: list[str]) -> None:
    if node is None:
        unknown.extend(f"{path}.{name}" for name in value)
        value.clear()
        return
    properties = node.properties
    for name in list(value):
        sub = properties.get(name)
        if sub is not None:
            if not (node.embedded and name in META_FIELDS):
                value[name] = _pruned(value[name], sub, f"{path}.{name}", unknown)
        elif node.embedded and name in META_FIELDS:
            continue
        elif node.additional_specified:
            value[name] = _pruned(value[name], node.additional, f"{path}.{name}", unknown)
        elif not node.preserve:
            del value[name]
            unknown.append(f"{path}.{name}")
