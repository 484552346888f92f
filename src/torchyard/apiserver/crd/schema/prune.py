"""Pruning: drops fields that the schema does not specify.

An unspecified field is removed before the object is stored. Its path is returned, so that strict field validation
can report it.
"""

from __future__ import annotations

from typing import Any

from torchyard.api.objects import Object
from torchyard.apiserver.crd.schema.node import META_FIELDS, SchemaNode
from torchyard.apiserver.crd.schema.value_path import ValuePath, format_path

# Go prints integral floats as integers, up to the largest integer that a float represents exactly.
_EXACT = float(2**53)
# The types of values that pruning can change.
_INNER = frozenset({dict, list, float})


def prune(obj: Object, root: SchemaNode, *, keep: frozenset[str] = META_FIELDS) -> list[str]:
    """Remove unspecified fields in place; returns their paths. `keep` has the root fields that are never pruned."""
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
    """Prune a value in place and return it."""
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
