"""How a value is owned, by its type: as a whole, field by field, or item by item."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from torchyard.api.schema.decode import zero_of
from torchyard.api.schema.types import Type

ANY: Final = Type("any")
ABSENT: Final[Any] = object()


def child_type(type: Type, key: str) -> Type:
    """The type of the value under a key; free-form if it is not declared."""
    if type.shape == "object":
        return type.fields.get(key, ANY)
    return type.values or ANY


def is_declared(type: Type, key: str) -> bool:
    """Whether a key is a declared field of the type, rather than an entry of a map."""
    return type.shape == "object" and key in type.fields


def is_granular(value: Any, type: Type) -> bool:
    """Whether a value is owned part by part: a granular object or an associative list. An empty value is a leaf."""
    if isinstance(value, dict):
        return bool(value) and not type.atomic_map and type.shape in ("object", "map", "any")
    if isinstance(value, list):
        return bool(value) and type.shape == "list" and type.list_type != "atomic"
    return False


# Bounded, because types of custom resources are created and deleted.
@lru_cache(maxsize=1024)
def empty_object(type: Type) -> dict[str, Any]:
    """The zero object: only the fields that Go always writes. It is shared and must not be changed."""
    return _zero(type) or {}


def _zero(type: Type) -> Any:
    if type.shape == "object" and not type.nullable:
        return {name: _zero(field) for name, field in type.fields.items() if field.zero == "always"}
    return zero_of(type)
