"""The CEL types of a schema, and the conversion of JSON values to them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.library.times import parse_date, parse_duration, parse_timestamp
from torchyard.apiserver.cel.parser import RESERVED
from torchyard.apiserver.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    ObjectField,
    ObjectType,
    list_of,
    map_of,
)
from torchyard.apiserver.cel.values import MapList, SetList
from torchyard.apiserver.crd.schema.node import SchemaNode

Convert = Callable[[Any], Any]

_SCALARS = {"boolean": BOOL, "number": DOUBLE, "integer": INT}
_FORMATS = {"byte": BYTES, "duration": DURATION, "date": TIMESTAMP, "date-time": TIMESTAMP}
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_META = ObjectType("metadata", fields={name: ObjectField(STRING, name) for name in ("name", "generateName")})


def escape_property_name(name: str) -> str | None:
    """A property's name as a CEL identifier, or None if it cannot be escaped."""
    if not name or name[0].isdigit():
        return None
    if name in RESERVED:
        return f"__{name}__"
    if re.search(r"[^a-zA-Z0-9_./-]", name):
        return None
    return re.sub(r"__|[-./]", lambda match: _ESCAPES[match.group()], name)


def type_of(node: SchemaNode, name: str, *, is_resource: bool = False) -> CelType | None:
    """The CEL type of a node; None if the schema does not specify enough, and rules cannot see the value."""
    if node.int_or_string:
        return DYN
    match node.type:
        case "array":
            items = type_of(node.items, f"{name}.@idx", is_resource=node.items.embedded) if node.items else None
            return list_of(items) if items else None
        case "object":
            if node.additional is not None:
                values = type_of(node.additional, f"{name}.@elem", is_resource=node.additional.embedded)
                return map_of(STRING, values) if values else None
            return _object_type(node, name, is_resource=is_resource)
        case "string":
            return _FORMATS.get(node.checks.format if node.checks else "", STRING)
    return _SCALARS.get(node.type)


def _object_type(node: SchemaNode, name: str, *, is_resource: bool) -> CelType:
    fields: dict[str, ObjectField] = {}
    for key, sub in node.properties.items():
        identifier = escape_property_name(key)
        kind = type_of(sub, f"{name}.{key}", is_resource=sub.embedded)
        if identifier is not None and kind is not None:
            fields[identifier] = ObjectField(kind, key)
    if is_resource:
        fields |= {"apiVersion": ObjectField(STRING, "apiVersion"), "kind": ObjectField(STRING, "kind")}
        fields["metadata"] = ObjectField(_META, "metadata")
    return ObjectType(name, nullable=True, fields=fields)


class Converter:
    """Converts JSON values to CEL values, node by node. Values that need no conversion are not copied."""

    def __init__(self) -> None:
        self._converters: dict[int, Convert | None] = {}

    def converter_for(self, node: SchemaNode) -> Convert | None:
        """The converter for a node's values; None if they need no conversion."""
        if id(node) not in self._converters:
            self._converters[id(node)] = self._build(node)
        return self._converters[id(node)]

    def convert(self, value: Any, node: SchemaNode) -> Any:
        converter = self.converter_for(node)
        return value if converter is None or value is None else converter(value)

    def _build(self, node: SchemaNode) -> Convert | None:
        match node.type:
            case "number":
                return _double
            case "string":
                format = node.checks.format if node.checks else ""
                return _string_converter(_STRINGS.get(format, str)) if format else None
            case "array":
                return self._list(node)
            case "object":
                return self._object(node)
        return None

    def _list(self, node: SchemaNode) -> Convert | None:
        items = self.converter_for(node.items) if node.items else None
        wrap: Convert | None = None
        if node.list_type == "set":
            wrap = SetList
        elif node.list_type == "map":
            wrap = lambda value: MapList(value, node.list_keys)  # noqa: E731 - one of two small functions
        if items is None:
            return wrap

        def convert(value: Any) -> Any:
            if not isinstance(value, list):
                return value
            converted = [item if item is None else _convert_or_keep(items, item) for item in value]
            return wrap(converted) if wrap else converted

        return convert

    def _object(self, node: SchemaNode) -> Convert | None:
        converters = {
            name: converter
            for name, sub in node.properties.items()
            if (converter := self.converter_for(sub)) is not None
        }
        additional = self.converter_for(node.additional) if node.additional else None
        if not converters and additional is None:
            return None

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return {
                key: item
                if item is None or (converter := converters.get(key, additional)) is None
                else _convert_or_keep(converter, item)
                for key, item in value.items()
            }

        return convert


def _convert_or_keep(converter: Convert, item: Any) -> Any:
    """Convert an item; one that cannot be converted stays as it is, and only the rules at its own node fail."""
    try:
        return converter(item)
    except EvaluationError:
        return item


def _string_converter(converter: Convert) -> Convert:
    """Schema validation accepts a list in place of a formatted string; rules do not."""

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise EvaluationError("invalid data, expected string, got []interface {}")
        return converter(value)

    return convert


def _double(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise EvaluationError(f"illegal base64 data: {error}") from None


def _duration(value: str) -> Any:
    return parse_duration(value)


def _date(value: str) -> Any:
    try:
        return parse_date(value)
    except ValueError:
        raise EvaluationError(f'parsing time "{value}" as a date') from None


_STRINGS: dict[str, Convert] = {"byte": _bytes, "duration": _duration, "date": _date, "date-time": parse_timestamp}
