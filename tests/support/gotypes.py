"""Objects as a typed Go client writes and reads them: what encoding/json leaves out, what it writes as null or zero,
and what it refuses to read. A type is named as in Go: `string`, `*int32`, `[]PodSet`, `map[string]string`."""

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
    found = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, _, kind = one.partition(" ")
        found.append(Field(name, kind.rstrip("!"), not kind.endswith("!")))
    return tuple(found)


class Go:
    def __init__(self, types: Types) -> None:
        self._types = types

    def written(self, kind: str, value: Any) -> Any:
        """What json.Marshal makes of a value; a field that is not there has Go's zero value."""
        if kind.startswith("*"):
            return None if value is None else self.written(kind[1:], value)
        if kind.startswith("[]"):
            return None if value is None else [self.written(kind[2:], one) for one in value]
        if kind.startswith("map[string]"):
            inner = kind.removeprefix("map[string]")
            return None if value is None else {key: self.written(inner, one) for key, one in value.items()}
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
        made: Object = {}
        for field in self._types[kind]:
            inner = value.get(field.name)
            if field.omitempty and self._is_empty(field.type, inner):
                continue
            made[field.name] = self.written(field.type, inner)
        return made

    def _is_empty(self, kind: str, value: Any) -> bool:
        """Structs are never empty to encoding/json; pointers are when they are nil."""
        if kind in self._types or kind in ("Time", "Quantity"):
            return False
        return value is None if kind.startswith("*") else not value

    def read(self, kind: str, value: Any, at: str = "") -> Any:
        """What json.Unmarshal makes of a value: unknown fields are dropped, wrong types refused."""
        if value is None:
            return None
        if kind.startswith("*"):
            return self.read(kind[1:], value, at)
        if kind.startswith("[]"):
            assert isinstance(value, list), f"{at}: cannot unmarshal {value!r} into {kind}"
            return [self.read(kind[2:], one, f"{at}[{index}]") for index, one in enumerate(value)]
        if kind.startswith("map[string]"):
            assert isinstance(value, dict), f"{at}: cannot unmarshal {value!r} into {kind}"
            inner = kind.removeprefix("map[string]")
            return {key: self.read(inner, one, f"{at}[{key}]") for key, one in value.items()}
        if kind in self._types:
            assert isinstance(value, dict), f"{at}: cannot unmarshal {value!r} into {kind}"
            known = {field.name: field for field in self._types[kind]}
            return {
                name: self.read(known[name].type, one, f"{at}.{name}") for name, one in value.items() if name in known
            }
        return self._read_scalar(kind, value, at)

    def _read_scalar(self, kind: str, value: Any, at: str) -> Any:
        if kind == "Time":
            assert value.endswith("Z"), f"{at}: {value!r} is no time in UTC"
            datetime.fromisoformat(value)
        elif kind == "Quantity":
            assert isinstance(value, str | int), f"{at}: cannot unmarshal {value!r} into Quantity"
            quantity.parse(value)
        elif kind != "any":
            wanted = _SCALARS[kind][0]
            assert type(value) is wanted, f"{at}: cannot unmarshal {value!r} into {kind}"
            if isinstance(value, int) and kind in _LIMITS:
                assert -_LIMITS[kind] <= value < _LIMITS[kind], f"{at}: {value} overflows {kind}"
        return value
