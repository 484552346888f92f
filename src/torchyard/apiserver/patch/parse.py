"""Parses a PATCH request: its Content-Type, options and body."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.go_format import format_v, json_type
from torchyard.api.objects import Object
from torchyard.api.patch import strategic_merge
from torchyard.api.patch.patch_errors import YamlConversionError, too_deep
from torchyard.api.schema.document import syntax_error
from torchyard.api.schema.json_text import read_replacing_invalid
from torchyard.api.schema.strict import duplicates_in, may_have_duplicates
from torchyard.api.schema.types import Type
from torchyard.apiserver.patch import json_patch, merge_patch

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CUSTOM_TYPES = (JSON, MERGE, APPLY)

FIELD_MANAGER_LIMIT = 128

FieldValidation = Literal["Strict", "Warn", "Ignore"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A parsed patch, which can be applied repeatedly when a write is retried."""

    type: str
    content: Any
    strict_errors: tuple[str, ...] = ()  # errors of strict field validation in the patch itself
    has_nulls: bool = True  # whether the patch may contain nulls

    @property
    def document(self) -> Any:
        """A fresh copy of the patch each time: it becomes part of objects that defaulting changes."""
        return orjson.loads(orjson.dumps(self.content))

    def apply_to(self, obj: Object, type: Type) -> Object:
        """The patched object, not decoded yet. Not for APPLY: see `apply.managed_fields`."""
        patched: Object
        try:
            if self.type == STRATEGIC:
                patched = strategic_merge.apply_strategic_merge_patch(obj, self.document, type)
            elif self.type == MERGE:
                patched = merge_patch.apply_merge_patch(obj, self.document, has_nulls=self.has_nulls)
            else:
                patched = json_patch.apply_json_patch(obj, self.document)
        except (RecursionError, orjson.JSONEncodeError):
            raise too_deep() from None
        return patched

    def invalid_error(self, patched: Object, reason: str) -> errors.StatusError:
        """422 for a patch whose result cannot be decoded or fails strict field validation."""
        value = format_v(self.content) if self.type == STRATEGIC else orjson.dumps(patched).decode()
        return errors.invalid("", "", "", [field_errors.invalid("patch", value, reason)])


def patch_type(content_type: str, *, custom: bool) -> str:
    """The patch format of a request; 415 if the resource does not support it."""
    named = content_type.partition(";")[0].strip()
    if named in CUSTOM_TYPES or (named == STRATEGIC and not custom):
        return named
    if custom:
        raise errors.unsupported_media_type(CUSTOM_TYPES)
    # Upstream rejects this earlier for built-in resources, with another message.
    raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def check_options(type: str, field_manager: str, *, force: bool | None) -> None:
    """Validate the query parameters of a patch; `force` is None if absent."""
    errs = list(field_manager_errors(field_manager))
    if type == APPLY:
        if not field_manager:
            errs.append(field_errors.required("fieldManager", "is required for apply patch"))
    elif force is not None:
        errs.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    if errs:
        raise errors.invalid("PatchOptions", "meta.k8s.io", "", errs)


def field_manager_errors(name: str) -> list[field_errors.FieldError]:
    """The errors of a `fieldManager` parameter, of any verb."""
    if name.isascii() and name.isprintable() and len(name) <= FIELD_MANAGER_LIMIT:
        return []
    errs = []
    if len(name.encode()) > FIELD_MANAGER_LIMIT:
        errs.append(field_errors.too_long("fieldManager", FIELD_MANAGER_LIMIT))
    for index, character in enumerate(name):
        if not character.isprintable():
            offset = len(name[:index].encode())
            detail = f"invalid character U+{ord(character):04X} (at position {offset})"
            errs.append(field_errors.invalid("fieldManager", name, detail))
    return errs


@lru_cache(maxsize=1024)
def field_manager(parameter: str, user_agent: str) -> str:
    """The field manager: the `fieldManager` parameter, or the program's name from the User-Agent."""
    if parameter:
        return parameter
    name = "".join(character for character in user_agent.partition("/")[0] if character.isprintable())
    return name.encode()[:FIELD_MANAGER_LIMIT].decode(errors="ignore")


def read_patch(type: str, body: bytes, validation: FieldValidation = "Warn") -> Patch:
    """Parse the patch of a request; 400 if its body is invalid."""
    try:
        if type == APPLY:
            return _read_apply(body, validation)
        return read_replacing_invalid(lambda text: _read_json(type, text, lenient=validation == "Ignore"), body)
    except (RecursionError, orjson.JSONEncodeError):
        # A document that is nested too deeply to be encoded cannot be stored either.
        raise too_deep() from None


def _read_json(type: str, body: bytes, *, lenient: bool) -> Patch:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise errors.bad_request(_malformed_message(type, syntax_error(body), lenient=lenient)) from None
    if type == JSON:
        operations = json_patch.check_operations(document, lenient=lenient)
        unknown = [] if lenient else [f"json patch {member}" for member in json_patch.unknown_members(operations)]
        return Patch(type, operations, tuple(unknown))
    if document is None and type == STRATEGIC:
        document = {}
    if document is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(document, dict):
        detail = f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(_malformed_message(type, detail, lenient=lenient))
    return Patch(type, document, () if lenient else tuple(_duplicate_fields(body, document)), has_nulls=b"null" in body)


def _malformed_message(type: str, detail: str, *, lenient: bool) -> str:
    if type == STRATEGIC or (type == JSON and lenient):
        return detail
    return "Invalid JSON Patch" if lenient else f"error decoding patch: {detail}"


def _read_apply(body: bytes, validation: FieldValidation) -> Patch:
    document, repeated = _json_or_yaml(body, look_for_repeated=validation != "Ignore")
    if not isinstance(document, dict | None):
        detail = f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {detail}")
    if repeated and validation == "Strict":
        lines = "\n  ".join(["yaml: unmarshal errors:", *repeated])
        raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {lines}")
    return Patch(APPLY, document or {}, tuple(repeated) if validation == "Warn" else ())


def _json_or_yaml(body: bytes, *, look_for_repeated: bool) -> tuple[Any, list[str]]:
    """An applied document, and its duplicate keys. Most clients send JSON, which is also YAML and parses faster."""
    try:
        document = orjson.loads(body)
        if not look_for_repeated or not may_have_duplicates(body, document):
            return document, []
    except orjson.JSONDecodeError:
        pass
    from torchyard.apiserver.patch.yaml_to_json import yaml_to_json

    try:
        return yaml_to_json(body)
    except YamlConversionError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None


def _duplicate_fields(body: bytes, document: Object) -> list[str]:
    """`duplicate field "spec.x"` for each duplicate field of the patch."""
    if not may_have_duplicates(body, document):
        return []
    return duplicates_in(body)
