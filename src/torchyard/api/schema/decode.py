"""Decoding a client's JSON into the object that a Go API server would hold.

A Go server decodes into structs and encodes them again. This drops unknown fields and nulls, brings quantities and
times into canonical form, and omits zero values where the struct has `omitempty`. Type mismatches are errors with Go's
messages. One decoder function per definition is compiled and cached, because every write passes through it. Custom
resources are not decoded here: they keep what the client sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.quantity import QuantityError, canonical
from torchyard.api.schema import scalars
from torchyard.api.schema.builtin import definition, kind_of
from torchyard.api.schema.strict import errors_of
from torchyard.api.schema.types import Type

Decoder = Callable[[Any, list[bool]], Any]


class DecodeError(YardError):
    """A value that does not fit its field. The message is Go's; the caller adds the kind.

    `unconverted` has the message of the converter that strategic merge patches use.
    """

    code = "BadRequest"

    def __init__(self, message: str, unconverted: str = "") -> None:
        super().__init__(message)
        self.unconverted = unconverted or message


def decode(obj: dict[str, Any], type: Type) -> tuple[dict[str, Any], list[str]]:
    """Return the object as a Go server holds it, and `unknown field "spec.foo"` for each unknown field.

    The caller must not use the given object afterwards: the new object shares parts of it.
    """
    unknown: list[bool] = []
    try:
        decoded = decoder_of(type)(obj, unknown)
    except _Mismatch as mismatch:
        raise DecodeError(mismatch.text(), mismatch.unconverted()) from None
    except ValueError as error:
        raise DecodeError(str(error)) from None
    except RecursionError:
        raise DecodeError("json: exceeded max depth") from None
    return decoded, errors_of(obj, type) if unknown else []


class _Mismatch(Exception):
    """A JSON value of the wrong type. Callers add the name of the innermost struct and the field path on the way up.

    `kind` is the expected Go kind, or empty if the type implements its own JSON decoding.
    """

    def __init__(self, value: Any, go: str, kind: str = "") -> None:
        self.value = value
        self.go = go
        self.kind = kind
        self.struct = ""
        self.path: list[str] = []

    def text(self) -> str:
        into = f"struct field {self.struct}.{'.'.join(reversed(self.path))}" if self.path else "value"
        return f"json: cannot unmarshal {_json_type(self.value, self.go)} into Go {into} of type {self.go}"

    def unconverted(self) -> str:
        go_kind = _go_kind(self.value)
        if self.kind in ("slice", "map"):
            return f"cannot restore {self.kind} from {go_kind}"
        if self.kind == "struct":
            return f"cannot restore struct from: {go_kind}"
        if not self.kind:
            return f"json: cannot unmarshal {_json_type(self.value, self.go)} into Go value of type {self.go}"
        # a conversion that Go has but JSON decoding does not allow
        if (go_kind, self.kind) in (("int64", "string"), ("float64", "int32"), ("float64", "int64")):
            return f"cannot convert {go_kind} to {self.go}"
        return f"unrecognized type: {self.kind}"


def _go_kind(value: Any) -> str:
    return {bool: "bool", int: "int64", float: "float64", str: "string", dict: "map"}.get(type(value), "slice")


def _json_type(value: Any, go: str) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            # numbers of the wrong type are quoted
            return f"number {value}" if go in ("int32", "int64") else "number"
        case str():
            return "string"
        case dict():
            return "object"
    return "array"


_compiled: dict[str, Decoder] = {}


def decoder_of(type: Type) -> Decoder:
    match type.shape:
        case "object":
            return _compiled.get(type.name) or _object(type)
        case "map":
            return _map(type)
        case "list":
            return _list(type)
        case "any":
            return _schema_or_other if type.name in _SCHEMA_UNIONS else _any
        case "int-or-string":
            return _int_or_string
    return _SCALARS[type.shape, type.format](go_name(type))


def go_name(type: Type) -> str:
    """Return the type name as Go's messages have it."""
    if type.go:
        return type.go
    if type.shape == "list" and type.items:
        return "[]" + go_name(type.items)
    if type.shape == "map" and type.values:
        return "map[string]" + go_name(type.values)
    if type.name and not type.scalar:
        return ".".join(type.name.split(".")[-2:])
    if type.shape == "integer":
        return type.format or "int64"
    if type.format == "byte":
        return "[]uint8"
    return {"boolean": "bool", "number": "float64"}.get(type.shape, "string")


def zero_of(type: Type) -> Any:
    """Return what Go writes for the zero value of a field that is not omitted."""
    if type.nullable:
        return None
    match type.shape:
        case "object":
            return {key: zero_of(child) for key, child in type.fields.items() if _is_always_written(key, type)}
        case "boolean":
            return False
        case "integer" | "number" | "int-or-string":
            return 0
        case "string":
            return {"quantity": "0", "date-time": None, "micro-time": None, "duration": "0s"}.get(type.format, "")
    return None


def _is_always_written(key: str, type: Type) -> bool:
    """Whether a field is written even if it was not sent.

    A required list, map or pointer is not set to null here: validation reports it as missing.
    """
    child = type.fields[key]
    return child.zero == "always" and not (child.nullable and key in type.required)


def _object(type: Type) -> Decoder:  # noqa: C901 - the compiled decoder's cases share closures
    struct, go = type.name.rpartition(".")[2], go_name(type)
    # key -> the Python type that needs no decoding, whether zero values are kept, and the decoder
    table: dict[str, tuple[type_of_value | None, bool, Decoder]] = {}
    constants: list[tuple[str, Any]] = []
    structs: list[tuple[str, dict[str, Any]]] = []
    # fields that Go writes as null, so that an object read from the store equals the stored one
    nulls = {key for key, child in type.fields.items() if child.nullable and child.zero == "always"}

    def decode_object(value: Any, unknown: list[bool]) -> Any:  # noqa: C901, PLR0912 - the hot path of every write; calls would cost more than branches
        if value.__class__ is not dict:
            raise _Mismatch(value, go, "struct")
        # Most fields stay unchanged: copying and correcting is faster than building a new dict.
        decoded: dict[str, Any] = value.copy()
        for key, item in value.items():
            field = table.get(key)
            if field is None:
                unknown.append(True)
                del decoded[key]
                continue
            plain, name, decoder = field
            if item.__class__ is plain:
                if not item and not name:
                    del decoded[key]
            elif item is None:
                if key not in nulls:
                    del decoded[key]
            else:
                try:
                    decoded_item = decoder(item, unknown)
                except _Mismatch as mismatch:
                    mismatch.struct = mismatch.struct or struct
                    mismatch.path.append(key)
                    raise
                if decoded_item or name:
                    decoded[key] = decoded_item
                else:
                    del decoded[key]
        for key, constant in constants:
            if key not in decoded:
                decoded[key] = constant
        for key, zero in structs:
            if key not in decoded:
                decoded[key] = _copy(zero) if zero else {}
        return decoded

    if type.name:
        _compiled[type.name] = decode_object
    for key, child in type.fields.items():
        table[key] = (_PLAIN.get((child.shape, child.format)), child.zero != "omit", _field(key, type))
        if _is_always_written(key, type):
            if child.shape == "object" and not child.nullable:
                structs.append((key, zero_of(child)))
            else:
                constants.append((key, zero_of(child)))
    return decode_object


def _copy(zero: dict[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if value.__class__ is dict else value for key, value in zero.items()}


type_of_value = type
_PLAIN: dict[tuple[str, str], type_of_value] = {("string", ""): str, ("boolean", ""): bool}


def _field(key: str, type: Type) -> Decoder:
    child = type.fields[key]
    inner = decoder_of(child)
    if (
        child.shape in ("list", "map")
        and child.nullable
        and _is_always_written(key, type)
        and kind_of(type.name) is None
    ):
        # an empty slice does not survive Go's storage: it becomes null (`Strategy.empty_is_null` handles whole kinds,
        # because field ownership needs the empty list until the object is stored)
        return lambda value, unknown: inner(value, unknown) or None
    return inner


def _map(type: Type) -> Decoder:
    go = go_name(type)
    assert type.values is not None
    values = type.values
    plain = _PLAIN.get((values.shape, values.format))
    inner = decoder_of(values)

    def decode_map(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            raise _Mismatch(value, go, "map")
        for item in value.values():
            if item.__class__ is not plain:
                break
        else:
            return value
        return {key: zero_of(values) if item is None else inner(item, unknown) for key, item in value.items()}

    return decode_map


def _list(type: Type) -> Decoder:
    go = go_name(type)
    assert type.items is not None
    items = type.items
    plain = _PLAIN.get((items.shape, items.format))
    inner = decoder_of(items)

    def decode_list(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not list:
            raise _Mismatch(value, go, "slice")
        for item in value:
            if item.__class__ is not plain:
                break
        else:
            return value
        return [zero_of(items) if item is None else inner(item, unknown) for item in value]

    return decode_list


def _any(value: Any, _: list[bool]) -> Any:
    return value


_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_SCHEMA_UNIONS = frozenset(_EXTENSIONS + "JSONSchemaPropsOr" + other for other in ("Bool", "Array", "StringArray"))


def _schema_or_other(value: Any, _: list[bool]) -> Any:
    """Decode a JSON schema, a list of them, or their alternatives. Go decodes this type by hand and less strictly."""
    if value.__class__ is dict:
        return decoder_of(definition(_EXTENSIONS + "JSONSchemaProps"))(value, [])
    if value.__class__ is list:
        return [_schema_or_other(item, _) for item in value]
    return value


def _exactly(plain: type_of_value) -> Callable[[str], Decoder]:
    kind = "bool" if plain is bool else "string"

    def scalar(go: str) -> Decoder:
        def decode_scalar(value: Any, _: list[bool]) -> Any:
            if value.__class__ is not plain:
                raise _Mismatch(value, go, kind)
            return value

        return decode_scalar

    return scalar


def _integer(minimum: int, maximum: int) -> Callable[[str], Decoder]:
    def integer(go: str) -> Decoder:
        def decode_integer(value: Any, _: list[bool]) -> Any:
            if value.__class__ is int and minimum <= value <= maximum:
                return value
            raise _Mismatch(value, go, go)

        return decode_integer

    return integer


def _number(go: str) -> Decoder:
    def decode_number(value: Any, _: list[bool]) -> Any:
        if value.__class__ is float:
            # Go writes 3.0 as 3
            return int(value) if value.is_integer() and abs(value) < 1e21 else value
        if value.__class__ is not int:
            raise _Mismatch(value, go)
        return value

    return decode_number


def _canonical_string(canonical_spelling: Callable[[str], str | None]) -> Callable[[str], Decoder]:
    """Return a decoder of strings that have a canonical form."""

    def spelled(go: str) -> Decoder:
        def decode_spelled(value: Any, _: list[bool]) -> Any:
            if value.__class__ is not str:
                raise _Mismatch(value, go)
            return canonical_spelling(value)

        return decode_spelled

    return spelled


def _quantity(_: str) -> Decoder:
    def decode_quantity(value: Any, _: list[bool]) -> Any:
        try:
            if value.__class__ is not str:
                value = value if value.__class__ in (int, float) else ""
            return canonical(value)
        except QuantityError as error:
            raise ValueError(error.message) from None

    return decode_quantity


def _int_or_string(value: Any, _: list[bool]) -> Any:
    if value.__class__ is str or (value.__class__ is int and -(2**31) <= value < 2**31):
        return value
    raise _Mismatch(value, "int32")


_SCALARS: dict[tuple[str, str], Callable[[str], Decoder]] = {
    ("string", ""): _exactly(str),
    ("boolean", ""): _exactly(bool),
    ("integer", "int32"): _integer(-(2**31), 2**31 - 1),
    ("integer", "int64"): _integer(-(2**63), 2**63 - 1),
    ("integer", ""): _integer(-(2**63), 2**63 - 1),
    ("number", "double"): _number,
    ("number", ""): _number,
    ("string", "byte"): _canonical_string(scalars.base64),
    ("string", "date-time"): _canonical_string(scalars.time),
    ("string", "micro-time"): _canonical_string(scalars.micro_time),
    ("string", "duration"): _exactly(str),
    ("string", "quantity"): _quantity,
}
