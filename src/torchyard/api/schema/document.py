"""Reading a client's document: parse it, check its kind, decode its fields as a Go API server does.

`read` takes a JSON body; `read_object` takes a document that was parsed from YAML or protobuf. Both return the object
and the texts for the Warning header, and raise the errors of kube-apiserver.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.go_format import json_type
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema import builtin
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.api.schema.strict import duplicates_in, errors_in, may_have_duplicates
from torchyard.api.schema.types import Type

FieldValidation = Literal["Strict", "Warn", "Ignore"]
Read = tuple[dict[str, Any], list[str]]

# The name of upstream's type registry in error messages.
_SCHEME_NAME = 'in scheme "pkg/runtime/scheme.go:110"'
_EXCERPT_LENGTH = 30


def read(body: bytes, gvk: GroupVersionKind, type: Type, validation: FieldValidation = "Warn") -> Read:
    """Read an object of a built-in kind from a JSON body."""
    obj, repeats = parse(body, gvk.kind)
    check_kind(obj, gvk)
    decoded, strict_errors = _decode(obj, gvk, type)
    if repeats and validation != "Ignore":
        strict_errors = errors_in(body, type)
    return decoded, apply_field_validation(strict_errors, gvk, validation)


def read_object(obj: dict[str, Any], gvk: GroupVersionKind, type: Type, validation: FieldValidation = "Warn") -> Read:
    """Read an object of a built-in kind from a parsed document. The document must not be used afterwards."""
    check_kind(obj, gvk)
    decoded, strict_errors = _decode(obj, gvk, type)
    return decoded, apply_field_validation(strict_errors, gvk, validation)


def read_custom(body: bytes, gvk: GroupVersionKind) -> Read:
    """Read a custom object as sent, and its duplicate fields. The document must have a kind."""
    obj, repeats = parse(body, gvk.kind)
    if not obj.get("kind"):
        raise _unrecognized_object(body, gvk.kind, f"Object 'Kind' is missing in '{body.decode('utf-8', 'replace')}'")
    check_custom_kind(obj, gvk)
    return obj, duplicates_in(body) if repeats else []


def check_custom_kind(obj: dict[str, Any], gvk: GroupVersionKind) -> None:
    """Raise 400 if the version or kind differs from that of the path."""
    api_version = obj.get("apiVersion") or ""
    if api_version != gvk.api_version:
        raise errors.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({gvk.api_version})"
        )
    kind = obj.get("kind") or ""
    if kind != gvk.kind:
        metadata = obj.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        raise errors.invalid(kind, gvk.group, name, [field_errors.invalid("kind", kind, f"must be {gvk.kind}")])


def parse(body: bytes, kind: str) -> tuple[dict[str, Any], bool]:
    """Parse a JSON object; also return whether the text may have duplicate fields. `null` is an empty object."""
    try:
        obj = orjson.loads(body)
        repeats = may_have_duplicates(body, obj)
    except orjson.JSONDecodeError:
        raise _unrecognized_object(
            body, kind, f"couldn't get version/kind; json parse error: {syntax_error(body)}"
        ) from None
    except TypeError:
        # too deeply nested to be encoded again, and so to be stored
        raise _unrecognized_object(body, kind, "json: exceeded max depth") from None
    if obj is None:
        return {}, False
    if not isinstance(obj, dict):
        raise _unrecognized_object(body, kind, f"couldn't get version/kind; json parse error: {_not_an_object(obj)}")
    check_readable_kind(obj, body, kind)
    return obj, repeats


def check_readable_kind(obj: dict[str, Any], body: bytes, kind: str) -> None:
    """Raise 400 if the version or kind of a parsed body is not a string; `kind` is the expected one."""
    if trouble := _unreadable_kind(obj):
        raise _unrecognized_object(body, kind, trouble)


def _unreadable_kind(obj: dict[str, Any]) -> str:
    """Return why the kind of an object cannot be read, or ""."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value.__class__ is not str and value is not None:
            return (
                "couldn't get version/kind; json parse error: "
                f"json: cannot unmarshal {json_type(value)} into Go struct field .{name} of type string"
            )
    if (obj.get("apiVersion") or "").count("/") > 1:
        return f"unexpected GroupVersion string: {obj['apiVersion']}"
    return ""


def check_kind(obj: dict[str, Any], gvk: GroupVersionKind) -> None:
    """Set the kind if the document has none; raise 400 if it has another."""
    if reason := wrong_kind(obj, gvk):
        version = (obj.get("apiVersion") or gvk.api_version).rpartition("/")[2]
        kind = obj.get("kind") or gvk.kind
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {gvk.kind}: {reason}')


def wrong_kind(obj: dict[str, Any], gvk: GroupVersionKind) -> str:
    """Set the kind if the document has none; return why it is the wrong one, or ""."""
    api_version, kind = obj.get("apiVersion") or gvk.api_version, obj.get("kind") or gvk.kind
    if (api_version, kind) == (gvk.api_version, gvk.kind):
        obj["apiVersion"], obj["kind"] = api_version, kind
        return ""
    if trouble := _unreadable_kind(obj):
        return trouble
    group, _, version = api_version.rpartition("/")
    definition = builtin.definition_of(GroupVersionKind(group, version, kind))
    if definition is not None and definition == builtin.definition_of(gvk):
        return ""
    if definition is None:
        return f'no kind "{kind}" is registered for version "{api_version}" {_SCHEME_NAME}'
    internal = gvk.group.partition(".")[0] or "core"
    return f"converting ({version}.{kind}) to ({internal}.{gvk.kind}): unknown conversion"


def cannot_handle(gvk: GroupVersionKind, reason: str) -> errors.StatusError:
    """Return the error for a document with the right kind and invalid content."""
    return errors.bad_request(f'{gvk.kind} in version "{gvk.version}" cannot be handled as a {gvk.kind}: {reason}')


def strict_error(strict_errors: list[str]) -> str:
    """Return the message of strict decoding about unknown and duplicate fields."""
    return f"strict decoding error: {', '.join(strict_errors)}"


def _decode(obj: dict[str, Any], gvk: GroupVersionKind, type: Type) -> tuple[dict[str, Any], list[str]]:
    try:
        return decode(obj, type)
    except DecodeError as error:
        raise cannot_handle(gvk, error.message) from None


def apply_field_validation(strict_errors: list[str], gvk: GroupVersionKind, validation: FieldValidation) -> list[str]:
    """Return unknown and duplicate fields as warnings, or raise 400 if the client asked for strict validation."""
    if strict_errors and validation == "Strict":
        raise cannot_handle(gvk, strict_error(strict_errors))
    return strict_errors if validation == "Warn" else []


def _unrecognized_object(body: bytes, kind: str, reason: str) -> errors.StatusError:
    if not body:
        excerpt = "<empty>"
    elif body.lstrip()[:1] == b"{":
        excerpt = body[:_EXCERPT_LENGTH].decode("utf-8", "replace") + (" ..." if len(body) > _EXCERPT_LENGTH else "")
    else:
        excerpt = body[:_EXCERPT_LENGTH].hex() + (" ..." if len(body) > _EXCERPT_LENGTH else "")
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {reason} ({excerpt})")


def _not_an_object(value: Any) -> str:
    header = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    return f"json: cannot unmarshal {json_type(value)} into Go value of type {header}"


_IN_OBJECT = "after object key:value pair"
_WHERE = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
}


def syntax_error(body: bytes) -> str:
    """Return the message of Go's scanner about a text that is not valid JSON."""
    try:
        text = body.decode()
        json.loads(text, parse_int=_skip_number, parse_float=_skip_number)
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        at = error.pos + (1 if "escape" in error.msg else 0)
        if at >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        where = _WHERE.get(error.msg, _IN_OBJECT)
        if where == _IN_OBJECT and _enclosing_bracket(text[:at]) == "[":
            where = "after array element"
        return f"invalid character {_quote_character(text[at])} {where}"
    except RecursionError:
        return "exceeded max depth"
    return "invalid number"


def _skip_number(_: str) -> None:
    """Numbers are not converted: int() rejects thousands of digits."""


def _enclosing_bracket(text: str) -> str:
    """Return the bracket that is still open at the end of a text."""
    opened = []
    for mark in re.findall(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', text):
        if mark in "[{":
            opened.append(mark)
        elif mark in "]}" and opened:
            opened.pop()
    return opened[-1] if opened else ""


def _quote_character(character: str) -> str:
    special = {"'": "'\\''", "\n": "'\\n'", "\t": "'\\t'", "\r": "'\\r'"}
    return special.get(character) or f"'{character}'"
