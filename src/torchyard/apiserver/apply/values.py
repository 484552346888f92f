"""How a value of a type counts for ownership: as a whole, field by field, or item by item."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from torchyard.api.schema.decode import zero_of
from torchyard.api.schema.types import Type

ANY: Final = Type("any")
ABSENT: Final[Any] = object()


def child_type(type: Type, key: str) -> Type:
    """The type of what stands under a key; free-form where nothing is declared."""
    if type.shape == "object":
        return type.fields.get(key, ANY)
    return type.values or ANY


def is_declared(type: Type, key: str) -> bool:
    """Whether a key is a declared field, which is there because the kind says so, not because somebody put it there."""
    return type.shape == "object" and key in type.fields


def is_granular(value: Any, type: Type) -> bool:
    """Whether a value is owned part by part: a granular object or an associative list. An empty one is a leaf."""
    if isinstance(value, dict):
        return bool(value) and not type.atomic_map and type.shape in ("object", "map", "any")
    if isinstance(value, list):
        return bool(value) and type.shape == "list" and type.list_type != "atomic"
    return False


# Bounded, since the types of custom resources come and go.
@lru_cache(maxsize=1024)
def empty_object(type: Type) -> dict[str, Any]:
    """An object before anything is set: only the fields that Go writes even if nobody sent them. Not to be changed."""
    return _zero(type) or {}


def _zero(type: Type) -> Any:
    if type.shape == "object" and not type.nullable:
        return {name: _zero(field) for name, field in type.fields.items() if field.zero == "always"}
    return zero_of(type)
