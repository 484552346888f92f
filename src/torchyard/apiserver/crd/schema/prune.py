"""Dropping what a schema does not name, and the nulls it does not allow.

A field a schema does not specify is removed from the object before it is stored, and reported, so that strict
clients can be told about it.
"""

from __future__ import annotations

from typing import Any

from torchyard.api.objects import Object
from torchyard.apiserver.crd.schema.node import META_FIELDS, SchemaNode
from torchyard.apiserver.crd.schema.value_path import ValuePath, format_path

# Integral floats print as integers in Go, up to the largest integer a float holds exactly.
_EXACT = float(2**53)
# What there is anything to do about.
_INNER = frozenset({dict, list, float})


def prune(obj: Object, root: SchemaNode, *, keep: frozenset[str] = META_FIELDS) -> list[str]:
    """Remove unspecified fields in place; the paths of those removed. `keep` names root fields that are not ours."""
    unknown: list[ValuePath] = []
    for name in list(obj):
        if name in keep:
            continue
        sub = root.properties.get(name)
        if sub is not None:
            obj[name] = _pruned(obj[name], sub, (None, name), unknown)
        elif not root.preserve:
            del obj[name]
            unknown.append((None, name))
    return sorted(map(format_path, unknown))


def prune_value(value: Any, node: SchemaNode) -> Any:
    """A value without what its schema does not specify; the value itself is changed."""
    return _pruned(value, node, None, [])


def _pruned(value: Any, node: SchemaNode | None, path: ValuePath, unknown: list[ValuePath]) -> Any:
    kind = type(value)
    if kind is dict:
        _prune_map(value, node, path, unknown)
    elif kind is list:
        if node is None or node.items is not None or not node.preserve:
            items = None if node is None else node.items
            for index, item in enumerate(value):
                if type(item) in _INNER:
                    value[index] = _pruned(item, items, (path, index), unknown)
    elif kind is float and value.is_integer() and -_EXACT < value < _EXACT:
        return int(value)
    return value


def _prune_map(value: Object, node: SchemaNode | None, path: ValuePath, unknown: list[ValuePath]) -> None:
    if node is None:
        unknown.extend((path, name) for name in value)
        value.clear()
        return
    properties = node.properties
    for name, item in list(value.items()):
        sub = properties.get(name)
        if sub is None:
            if node.embedded and name in META_FIELDS:
                continue
            if node.additional_specified:
                sub = node.additional
            else:
                if not node.preserve:
                    del value[name]
                    unknown.append((path, name))
                continue
        elif node.embedded and name in META_FIELDS:
            continue
        if type(item) in _INNER:
            value[name] = _pruned(item, sub, (path, name), unknown)
