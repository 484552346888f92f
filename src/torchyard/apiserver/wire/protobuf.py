"""Protobuf request bodies, which client-go and kubectl since 1.32 send for built-in kinds, decoded to JSON objects.

Only this direction exists: every client that writes protobuf also reads JSON. A decoded object still goes through
`api.schema.document.read_object`, since protobuf carries zero values that Go's JSON leaves out. Hostile bytes end in a
400, never in a traceback and never in more memory than a few times the body.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema import builtin
from torchyard.api.schema.document import cannot_handle
from torchyard.api.schema.protobuf import Field, message_fields
from torchyard.api.schema.scalars import micro_time, time

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
# The depth to which JSON can be nested and still be encoded; only JSON schemas are recursive at all.
_MAX_DEPTH = 120
_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SHOWN_BYTES = 30


class _Malformed(Exception):
    """Bytes that are not a valid message. The text is that of Go's decoder."""


def decode(body: bytes, expected: GroupVersionKind) -> dict[str, Any]:
    """The object in a protobuf body. A body without a kind is taken for the expected one."""
    try:
        api_version, kind, raw = _envelope(body)
    except _Malformed as error:
        excerpt = (
            body[:_MAX_SHOWN_BYTES].hex() + (" ..." if len(body) > _MAX_SHOWN_BYTES else "") if body else "<empty>"
        )
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): {error} ({excerpt})"
        ) from None
    api_version, kind = api_version or expected.api_version, kind or expected.kind
    group, _, version = api_version.rpartition("/")
    gvk = GroupVersionKind(group, version, kind)
    name = _message_of(gvk)
    if name is None:
        reason = f'no kind "{kind}" is registered for version "{api_version}" in protobuf; send it as JSON'
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {expected.kind}: {reason}')
    try:
        obj = _message(name, raw, 0)
    except _Malformed as error:
        raise cannot_handle(gvk, str(error)) from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _message_of(gvk: GroupVersionKind) -> str | None:
    name = builtin.definition_of(gvk)
    return name if name and message_fields(name) is not None else None


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    """apiVersion, kind and the object's bytes of a `runtime.Unknown`."""
    if not body:
        raise _Malformed("empty data")
    if body[:4] != _MAGIC:
        raise _Malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    if len(body) == len(_MAGIC):
        raise _Malformed("empty body")
    api_version = kind = ""
    raw = b""
    for number, value in _fields(body[4:], "Unknown"):
        if not isinstance(value, bytes):
            raise _Malformed(f"proto: wrong wireType = 0 for field {number}")
        if number == 1:
            parts = dict(_fields(value, "TypeMeta"))
            api_version, kind = (_text(part) if isinstance(part := parts.get(i), bytes) else "" for i in (1, 2))
        elif number == 2:
            raw = value
    return api_version, kind, raw


def _fields(data: bytes, name: str) -> list[tuple[int, int | bytes]]:
    """Number and value of each field: an int for a varint, else the bytes."""
    fields: list[tuple[int, int | bytes]] = []
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number <= 0 or number > 2**29:
            raise _Malformed(f"proto: {name}: illegal tag {number} (wire type {wire})")
        if wire == _VARINT:
            value, at = _varint(data, at)
            fields.append((number, value))
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
            if size >= 2**63:
                raise _Malformed("proto: negative length found during unmarshaling")
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        elif wire == _END_GROUP:
            raise _Malformed(f"proto: {name}: wiretype end group for non-group")
        else:
            raise _Malformed(f"proto: {name}: illegal wireType {wire}")
        if at + size > end:
            raise _Malformed("unexpected EOF")
        fields.append((number, data[at : at + size]))
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift >= 64:
                raise _Malformed("proto: integer overflow")
    except IndexError:
        raise _Malformed("unexpected EOF") from None


def _message(name: str, data: bytes, depth: int) -> dict[str, Any]:
    table = message_fields(name)
    if table is None:
        raise _Malformed(f"proto: {name} is not known")
    if depth > _MAX_DEPTH:
        raise _Malformed("proto: exceeded max depth")
    obj: dict[str, Any] = {}
    for number, value in _fields(data, name.rpartition(".")[2]):
        field = table.get(number)
        if field is None:
            continue
        if field.keyed:
            key, item = _entry(field, value, depth)
            obj.setdefault(field.name, {})[key] = item
        elif field.repeated:
            _extend(obj.setdefault(field.name, []), field, value, depth)
        elif field.name:
            obj[field.name] = _value(field, value, depth)
        else:
            obj |= _message(field.type, _bytes(field, value), depth + 1)
    return obj


def _entry(field: Field, value: int | bytes, depth: int) -> tuple[str, Any]:
    """Key and value of a map entry; either is omitted if it is zero."""
    parts = dict(_fields(_bytes(field, value), "entry"))
    key = parts.get(1, b"")
    return _text(_bytes(field, key)), _value(field, parts.get(2, b""), depth)


def _extend(items: list[Any], field: Field, value: int | bytes, depth: int) -> None:
    """Repeated numbers come one by one, or packed."""
    if field.type not in ("int32", "int64") or not isinstance(value, bytes):
        items.append(_value(field, value, depth))
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        items.append(_value(field, number, depth))


def _value(field: Field, value: int | bytes, depth: int) -> Any:
    match field.type:
        case "string":
            return _text(_bytes(field, value))
        case "bytes":
            return b64encode(_bytes(field, value)).decode()
        case "bool":
            return _int(field, value) != 0
        case "int32":
            return _signed(_int(field, value) & 0xFFFFFFFF, 32)
        case "int64":
            return _signed(_int(field, value), 64)
        case "double":
            return _double(_bytes(field, value))
    data = _bytes(field, value)
    decoder = _CUSTOM_DECODERS.get(field.type)
    return decoder(data, depth + 1) if decoder else _message(field.type, data, depth + 1)


def _bytes(field: Field, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise _Malformed(f"proto: wrong wireType = 0 for field {_go(field)}")


def _int(field: Field, value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    if not value:  # a map entry omits its zero value
        return 0
    raise _Malformed(f"proto: wrong wireType = 2 for field {_go(field)}")


def _go(field: Field) -> str:
    return "ObjectMeta" if field.name == "metadata" else field.name[:1].upper() + field.name[1:]


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _double(data: bytes) -> float:
    if len(data) != 8:
        raise _Malformed("unexpected EOF")
    number: float = struct.unpack("<d", data)[0]
    if not math.isfinite(number):
        raise _Malformed(f"json: unsupported value: {number}")
    return number


def _text(data: bytes) -> str:
    # Go keeps invalid UTF-8 and replaces it when it writes JSON
    return data.decode("utf-8", "replace")


def _integers(data: bytes, *numbers: int) -> list[int]:
    parts = dict(_fields(data, "Timestamp"))
    return [_signed(value, 64) if isinstance(value := parts.get(number, 0), int) else 0 for number in numbers]


def _time(data: bytes, _: int) -> str | None:
    return time(f"{_timestamp(data).isoformat()[:19]}Z") if data else None


def _micro_time(data: bytes, _: int) -> str | None:
    return micro_time(f"{_timestamp(data).isoformat(timespec='microseconds')[:26]}Z") if data else None


def _timestamp(data: bytes) -> datetime:
    seconds, nanos = _integers(data, 1, 2)
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise _Malformed("Time.MarshalJSON: year outside of range [0,9999]") from None


def _duration(data: bytes, _: int) -> str:
    return f"{_integers(data, 1)[0] / 1e9:g}s"


def _int_or_string(data: bytes, depth: int) -> int | str:
    parts = _message("io.k8s.apimachinery.pkg.util.intstr.IntOrString", data, depth)
    return str(parts.get("strVal", "")) if parts.get("type") else int(parts.get("intVal", 0))


def _quantity(data: bytes, _: int) -> str:
    text = dict(_fields(data, "Quantity")).get(1, b"")
    return _text(text) or "0" if isinstance(text, bytes) else "0"


def _json(data: bytes, depth: int) -> Any:
    """Free-form JSON, or an object that is itself protobuf."""
    raw = dict(_fields(data, "RawExtension")).get(1, b"")
    if not isinstance(raw, bytes) or not raw:
        return None
    if raw[:4] == _MAGIC:
        return _nested(raw, depth)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _Malformed(f"json: {error}") from None


def _nested(raw: bytes, depth: int) -> dict[str, Any]:
    api_version, kind, data = _envelope(raw)
    group, _, version = api_version.rpartition("/")
    name = _message_of(GroupVersionKind(group, version, kind))
    if name is None:
        raise _Malformed(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"apiVersion": api_version, "kind": kind, **_message(name, data, depth + 1)}


def _strings(data: bytes, _: int) -> list[str]:
    return [_text(value) for number, value in _fields(data, "Items") if number == 1 and isinstance(value, bytes)]


def _schema_or_bool(data: bytes, depth: int) -> Any:
    parts = _message(_EXTENSIONS + "JSONSchemaPropsOrBool", data, depth)
    return parts.get("schema", parts.get("allows", False))


def _schema_or_array(data: bytes, depth: int) -> Any:
    parts = _message(_EXTENSIONS + "JSONSchemaPropsOrArray", data, depth)
    return parts.get("jSONSchemas") or parts.get("schema")


def _schema_or_strings(data: bytes, depth: int) -> Any:
    parts = _message(_EXTENSIONS + "JSONSchemaPropsOrStringArray", data, depth)
    return parts.get("property") or parts.get("schema")


# Messages whose JSON is not an object of their fields.
_CUSTOM_DECODERS: dict[str, Callable[[bytes, int], Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _json,
    "io.k8s.api.authentication.v1.ExtraValue": _strings,
    "io.k8s.api.authorization.v1.ExtraValue": _strings,
    "io.k8s.api.certificates.v1.ExtraValue": _strings,
    _META + "Time": _time,
    _META + "MicroTime": _micro_time,
    _META + "Duration": _duration,
    _META + "FieldsV1": _json,
    _META + "Verbs": _strings,
    _EXTENSIONS + "JSON": _json,
    _EXTENSIONS + "JSONSchemaPropsOrBool": _schema_or_bool,
    _EXTENSIONS + "JSONSchemaPropsOrArray": _schema_or_array,
    _EXTENSIONS + "JSONSchemaPropsOrStringArray": _schema_or_strings,
}
