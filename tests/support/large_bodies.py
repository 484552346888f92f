"""Objects with a large list or map, for every list and map in a kind's schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.schema.types import Type

# Deeper fields belong to types that are reached on a shorter way too.
_MAX_DEPTH = 9
_TEXTS = {
    "image": "busybox",
    "mountPath": "/m{}",
    "path": "p{}",
    "ip": "10.0.0.1",
    "protocol": "TCP",
    "operator": "Exists",
    "key": "key{}",
    "apiVersion": "v1",
    "kind": "Thing",
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "effect": "NoSchedule",
    "fieldPath": "metadata.name",
    "type": "",
    "expression": "true",
    "rule": "true",
}
_NUMBERS = {"containerPort": 60000, "port": 60000, "hostPort": 0, "maxSkew": 1, "weight": 1}


@dataclass(frozen=True, slots=True)
class LargeField:
    """A list or map of a kind, by the way to it; `None` in a way is the first item of a list or map."""

    way: tuple[str | None, ...]
    type: Type

    def __str__(self) -> str:
        return ".".join(step or "0" for step in self.way)

    def fill(self, base: Object, root: Type, count: int) -> Object:
        """The object with `count` entries in this field; `base` is not changed."""
        filled: Object = _fill(base, root, self.way, count)
        return filled


def large_fields(root: Type) -> Iterator[LargeField]:
    """All lists and maps of a kind, each type once."""
    yield from _fields(root, (), (), set())


def _fields(
    type: Type, way: tuple[str | None, ...], above: tuple[str, ...], seen: set[tuple[str, str]]
) -> Iterator[LargeField]:
    if len(way) > _MAX_DEPTH or way[:1] == ("status",) or way[:2] == ("metadata", "managedFields"):
        return
    if type.shape == "object":
        for name, field in type.fields.items():
            if (type.name, name) not in seen and field.name not in above:
                seen.add((type.name, name))
                yield from _fields(field, (*way, name), (*above, field.name) if field.name else above, seen)
    elif type.shape in ("map", "list"):
        yield LargeField(way, type)
        inner = type.values if type.shape == "map" else type.items
        if inner is not None:
            yield from _fields(inner, (*way, None), above, seen)


def _fill(value: Any, type: Type, way: tuple[str | None, ...], count: int) -> Any:
    if not way:
        inner = type.values if type.shape == "map" else type.items
        items = [plausible(inner, "", number) for number in range(count)] if inner is not None else list(range(count))
        return {f"key{number}": item for number, item in enumerate(items)} if type.shape == "map" else items
    step, *rest = way
    if step is not None:
        fields = dict(value) if isinstance(value, dict) else plausible(type, "", 0)
        fields[step] = _fill(fields.get(step), type.fields[step], tuple(rest), count)
        return fields
    inner = type.values if type.shape == "map" else type.items
    assert inner is not None
    if type.shape == "map":
        return {"first": _fill(None, inner, tuple(rest), count)}
    first = value[0] if isinstance(value, list) and value else None
    return [_fill(first, inner, tuple(rest), count)]


def plausible(type: Type, name: str, number: int) -> Any:  # noqa: PLR0911 - one return per shape
    """A value that is valid for many fields: the required fields only, with distinct names."""
    match type.shape:
        case "object":
            names = {*type.required, *(field for field in ("name", "key") if field in type.fields)}
            return {
                field: plausible(type.fields[field], field, number) for field in sorted(names) if field in type.fields
            }
        case "map":
            return {}
        case "list":
            return []
        case "integer" | "number":
            return 1 + number % _NUMBERS.get(name, 1) if _NUMBERS.get(name, 0) > 1 else _NUMBERS.get(name, 1)
        case "boolean":
            return False
        case "int-or-string":
            return 1 + number % 60000
        case "any":
            return {}
    if type.format == "quantity":
        return "1"
    if type.format in ("date-time", "micro-time"):
        return "2026-01-01T00:00:00Z"
    if type.format == "byte":
        return "YQ=="
    return _TEXTS.get(name, "n{}").format(number)
