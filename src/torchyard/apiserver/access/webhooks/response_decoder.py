"""Decodes the JSON of an AdmissionReview's response, with the type errors of a Go server.

A webhook may answer anything. What is not of the right type must not get further than here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from torchyard.api.go_format import json_type
from torchyard.api.objects import Object


class ResponseTypeError(ValueError):
    """A field of another type than the API says, in Go's words."""


class _Struct(NamedTuple):
    go_type: str
    fields: dict[str, Any]  # name -> a Go type's name, a _Struct, or a list of one of them


_CAUSE = _Struct("v1.StatusCause", {"reason": "v1.CauseType", "message": "string", "field": "string"})
_DETAILS = _Struct(
    "v1.StatusDetails",
    {
        **dict.fromkeys(("name", "group", "kind"), "string"),
        "uid": "types.UID",
        "causes": [_CAUSE],
        "retryAfterSeconds": "int32",
    },
)
_STATUS = _Struct(
    "v1.Status",
    {"status": "string", "message": "string", "reason": "v1.StatusReason", "details": _DETAILS, "code": "int32"},
)
_RESPONSE = _Struct(
    "v1.AdmissionResponse",
    {
        "uid": "types.UID",
        "allowed": "bool",
        "status": _STATUS,
        "patch": "uint8",
        "patchType": "v1.PatchType",
        "auditAnnotations": "map[string]string",
        "warnings": ["string"],
    },
)
_INT32 = range(-(2**31), 2**31)


def decode_response(value: Any) -> Object | None:
    """The known fields of a review's `response`; `patch` as bytes. None for null. Raises ResponseTypeError."""
    return _decode_struct(value, _RESPONSE, "AdmissionReview", "response")


def _decode_struct(value: Any, struct: _Struct, parent: str, path: str) -> Object | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _mismatch(value, parent, path, struct.go_type)
    name = struct.go_type.partition(".")[2]
    decoded = {
        key: _decode(value[key], kind, name, f"{path}.{key}") for key, kind in struct.fields.items() if key in value
    }
    return {key: item for key, item in decoded.items() if item is not None}


def _decode(value: Any, kind: Any, parent: str, path: str) -> Any:
    if value is None:
        return None
    if isinstance(kind, _Struct):
        return _decode_struct(value, kind, parent, path)
    if isinstance(kind, list):
        (item_kind,) = kind
        if not isinstance(value, list):
            raise _mismatch(value, parent, path, f"[]{item_kind if isinstance(item_kind, str) else item_kind.go_type}")
        return [_decode(item, item_kind, parent, path) for item in value]
    if kind == "uint8":
        return _decode_bytes(value, parent, path)
    if kind == "map[string]string":
        if not isinstance(value, dict):
            raise _mismatch(value, parent, path, kind)
        return {key: _decode(item, "string", parent, path) or "" for key, item in value.items()}
    return _decode_scalar(value, kind, parent, path)


def _decode_scalar(value: Any, kind: str, parent: str, path: str) -> Any:
    if kind == "bool":
        if not isinstance(value, bool):
            raise _mismatch(value, parent, path, kind)
    elif kind == "int32":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, parent, path, kind)
        if isinstance(value, float) or value not in _INT32:
            raise ResponseTypeError(
                f"json: cannot unmarshal number {value} into Go struct field {parent}.{path} of type {kind}"
            )
    elif not isinstance(value, str):
        raise _mismatch(value, parent, path, kind)
    return value


def _decode_bytes(value: Any, parent: str, path: str) -> bytes:
    if isinstance(value, list) and value:
        raise _mismatch(value[0], parent, path, "uint8")
    if isinstance(value, list):
        return b""
    if not isinstance(value, str):
        raise _mismatch(value, parent, path, "[]uint8")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ResponseTypeError(f"illegal base64 data at input byte {_first_illegal(value)}") from None


_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _first_illegal(text: str) -> int:
    return next((index for index, letter in enumerate(text) if letter not in _ALPHABET), len(text))


def _mismatch(value: Any, parent: str, path: str, kind: str) -> ResponseTypeError:
    return ResponseTypeError(
        f"json: cannot unmarshal {json_type(value)} into Go struct field {parent}.{path} of type {kind}"
    )
