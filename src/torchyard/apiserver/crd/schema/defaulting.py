"""Sets a schema's defaults, and treats a null that is not allowed as an absent field."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api.objects import Object
from torchyard.apiserver.crd.schema.node import META_FIELDS, SchemaNode

_INNER = frozenset({dict, list})


def default(obj: Object, root: SchemaNode, *, skip: frozenset[str] = META_FIELDS) -> None:
    """Default a whole custom resource in place, except for its metadata."""
    for name, sub in root.defaulted:
        if obj.get(name) is None and not (name in obj and sub.nullable):
            obj[name] = _copy(sub.default)
    for name, value in list(obj.items()):
        if (value is None or type(value) in _INNER) and name not in skip:
            _default_entry(obj, name, root.properties.get(name))


def default_value(value: Any, node: SchemaNode) -> None:
    """Default the contents of a value in place."""
    if isinstance(value, dict):
        default(value, node, skip=frozenset())
        if node.additional is not None:
            for name, item in list(value.items()):
                if (item is None or type(item) in _INNER) and name not in node.properties:
                    _default_entry(value, name, node.additional)
    elif isinstance(value, list) and node.items is not None:
        items = node.items
        for index, item in enumerate(value):
            if item is None and not items.nullable and items.has_default:
                value[index] = _copy(items.default)
            if type(value[index]) in _INNER:
                default_value(value[index], items)


def _default_entry(obj: Object, name: str, node: SchemaNode | None) -> None:
    if node is None:
        return
    value = obj[name]
    if value is None:
        if node.nullable:
            return
        if not node.has_default:
            del obj[name]
            return
        value = obj[name] = _copy(node.default)
    if type(value) in _INNER:
        default_value(value, node)


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value
