"""Objects as a typed Go client writes and reads them: what encoding/json omits, what it writes as null or zero, and
what it rejects. A type is named as in Go: `string`, `*int32`, `[]PodSet`, `map[string]string`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from torchyard.api import quantity
from torchyard.api.objects import Object


class Field(NamedTuple):
    name: str  # in JSON
    type: str
    omitempty: bool


Types = Mapping[str, tuple[Field, ...]]

_SCALARS: dict[str, tuple[type, Any]] = {
    "string": (str, ""),
    "bool": (bool, False),
    "int32": (int, 0),
    "int64": (int, 0),
}
_LIMITS = {"int32": 2**31, "int64": 2**63}


def fields(text: str) -> tuple[Field, ...]:
    """`name string, count int32!`: an exclamation mark stands for a field without omitempty."""
    parsed = []
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        name, _, kind = declaration.partition(" ")
        parsed.append(Field(name, kind.rstrip("!"), not kind.endswith("!")))
    return tuple(parsed)


class Go:
    def __init__(self, types: Types) -> None:
        self._types = types

    def marshal(self, kind: str, value: Any) -> Any:
        """Encode a value as json.Marshal does; a missing field has Go's zero value."""
        if kind.startswith("*"):
            return None if value is None else self.marshal(kind[1:], value)
        if kind.startswith("[]"):
            return None if value is None else [self.marshal(kind[2:], item) for item in value]
        if kind.startswith("map[string]"):
            inner = kind.removeprefix("map[string]")
            return None if value is None else {key: self.marshal(inner, item) for key, item in value.items()}
        if kind in self._types:
            return self._struct(kind, value or {})
        if kind == "Time":
            return value or None
        if kind == "Quantity":
            return "0" if value is None else str(quantity.parse(value))
        if kind == "any":
            return value
        return _SCALARS[kind][1] if value is None else value

    def _struct(self, kind: str, value: Object) -> Object:
        struct: Object = {}
        for field in self._types[kind]:
            inner = value.get(field.name)
            if field.omitempty and self._is_empty(field.type, inner):
                continue
            struct[field.name] = self.marshal(field.type, inner)
        return struct

    def _is_empty(self, kind: str, value: Any) -> bool:
        """Structs are never empty to encoding/json; pointers are when they are nil."""
        if kind in self._types or kind in ("Time", "Quantity"):
            return False
        return value is None if kind.startswith("*") else not value

    def unmarshal(self, kind: str, value: Any, at: str = "") -> Any:
        """Decode a value as json.Unmarshal does: drop unknown fields, reject wrong types."""
        if value is None:
            return None
        if kind.startswith("*"):
            return self.unmarshal(kind[1:], value, at)
        if kind.startswith("[]"):
            assert isinstance(value, list), f"{at}: cannot unmarshal {value!r} into {kind}"
            return [self.unmarshal(kind[2:], item, f"{at}[{index}]") for index, item in enumerate(value)]
        if kind.startswith("map[string]"):
            assert isinstance(value, dict), f"{at}: cannot unmarshal {value!r} into {kind}"
            inner = kind.removeprefix("map[string]")
            return {key: self.unmarshal(inner, item, f"{at}[{key}]") for key, item in value.items()}
        if kind in self._types:
            assert isinstance(value, dict), f"{at}: cannot unmarshal {value!r} into {kind}"
            known = {field.name: field for field in self._types[kind]}
            return {
                name: self.unmarshal(known[name].type, item, f"{at}.{name}")
                for name, item in value.items()
                if name in known
            }
        return self._read_scalar(kind, value, at)

    def _read_scalar(self, kind: str, value: Any, at: str) -> Any:
        if kind == "Time":
            assert value.endswith("Z"), f"{at}: {value!r} is not a time in UTC"
            datetime.fromisoformat(value)
        elif kind == "Quantity":
            assert isinstance(value, str | int), f"{at}: cannot unmarshal {value!r} into Quantity"
            quantity.parse(value)
        elif kind != "any":
            python_type = _SCALARS[kind][0]
            assert type(value) is python_type, f"{at}: cannot unmarshal {value!r} into {kind}"
            if isinstance(value, int) and kind in _LIMITS:
                assert -_LIMITS[kind] <= value < _LIMITS[kind], f"{at}: {value} overflows {kind}"
        return value
