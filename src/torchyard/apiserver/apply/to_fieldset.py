"""The field set of an object: the fields that the manager who applies or creates it owns."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, Final

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import SELF, FieldSet
from torchyard.apiserver.apply.path_elements import item_step
from torchyard.apiserver.apply.values import ANY, child_type, is_declared, is_granular

# Shared; field sets are never modified.
LEAF: Final[FieldSet] = {}
_NESTED: Final[frozenset[Any]] = frozenset((dict, list))


def applied_fields(value: Any, type: Type) -> FieldSet:
    """The fields that an apply of this object owns: leaves, map entries and list items, not the objects around them."""
    return _applied(value, type) or {}


def _applied(value: Any, type: Type) -> FieldSet | None:
    """The set below a value, {} for a leaf, None if nothing is owned."""
    if not is_granular(value, type):
        # An empty associative list has no items to own.
        return None if isinstance(value, list) and type.list_type != "atomic" else {}
    result: FieldSet = {}
    if isinstance(value, dict):
        for key, inner in value.items():
            fields = _applied(inner, child_type(type, key))
            if is_declared(type, key):
                if fields is not None:
                    result[f"f:{key}"] = fields
            else:
                result[f"f:{key}"] = {SELF: {}, **fields} if fields else {}
        return result or None
    item_type = type.items or ANY
    for step, item in _items_by_step(value, type):
        fields = _applied(item, item_type)
        result[step] = {SELF: {}, **fields} if fields else {}
    return result


def created_fields(value: Any, type: Type) -> FieldSet:
    """The fields of a new value: every leaf and everything around it, the value itself included.

    This and `set_fields` take most of the time of recording a create, and are optimized for speed.
    """
    if value.__class__ is dict:
        if not value or type.atomic_map:
            return LEAF
        result = flat = _scalars(tuple(value))
        for key, inner in value.items():
            if inner.__class__ in _NESTED:
                if result is flat:
                    result = flat.copy()
                result["f:" + key] = created_fields(inner, type.fields.get(key) or type.values or ANY)
        return result
    if value.__class__ is list and value and type.list_type != "atomic":
        result = {SELF: LEAF}
        item_type = type.items or ANY
        for item in value:
            step = item_step(item, type)
            # As upstream: items with the same key count as a single leaf.
            result[step] = LEAF if step in result else created_fields(item, item_type)
        return result
    return LEAF


@lru_cache(maxsize=4096)
def _scalars(keys: tuple[str, ...]) -> FieldSet:
    """The fields of a new object of scalars. Most objects are of this kind, with few distinct key sets."""
    return {SELF: LEAF} | {f"f:{key}": LEAF for key in keys}


def set_fields(value: dict[str, Any], zero: dict[str, Any], type: Type) -> FieldSet:
    """The fields that a new object sets, compared with the zero object (`empty_object`)."""
    result: FieldSet = {}
    for key, inner in value.items():
        inner_type = type.fields.get(key) or type.values or ANY
        if key not in zero:
            result["f:" + key] = created_fields(inner, inner_type)
            continue
        zero_value = zero[key]
        if inner == zero_value:
            continue
        if zero_value and is_granular(inner, inner_type):
            fields = set_fields(inner, zero_value, inner_type)
        else:
            created = created_fields(inner, inner_type)
            fields = {step: node for step, node in created.items() if step != SELF}
        result["f:" + key] = fields
    return result


def _items_by_step(items: list[Any], type: Type) -> list[tuple[str, Any]]:
    """The items with their steps; as upstream, items with the same step count as a single leaf."""
    steps = [item_step(item, type) for item in items]
    if len(set(steps)) == len(steps):
        return list(zip(steps, items, strict=True))
    times = Counter(steps)
    return [(step, item if times[step] == 1 else None) for step, item in zip(steps, items, strict=True)]


def with_named_fields(fields: FieldSet, type: Type) -> FieldSet:
    """The set in which every declared field with members below it is a member too."""
    result: FieldSet = {}
    for step, node in fields.items():
        if step == SELF or not node:
            result[step] = node
            continue
        inner = with_named_fields(node, _type_below(type, step))
        named = step.startswith("f:") and is_declared(type, step[2:])
        result[step] = {SELF: {}, **inner} if named and SELF not in inner else inner
    return result


def _type_below(type: Type, step: str) -> Type:
    if step.startswith("f:"):
        return child_type(type, step[2:])
    return type.items or ANY if step.startswith("k:") else ANY
