"""From the Content-Type and body of a PATCH request to what it asks for."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

from torchyard.api import errors, field_errors
from torchyard.api.objects import Object
from torchyard.api.schema.document import syntax_error
from torchyard.api.schema.strict import Pairs, may_repeat
from torchyard.api.schema.types import Type
from torchyard.apiserver.patch import json_patch, merge_patch, strategic_merge
from torchyard.apiserver.patch.go_format import format_v, json_type
from torchyard.apiserver.patch.patch_errors import too_deep
from torchyard.apiserver.patch.yaml_to_json import YamlConversionError, yaml_to_json

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CUSTOM_TYPES = (JSON, MERGE, APPLY)

FIELD_MANAGER_LIMIT = 128

Validation = Literal["Strict", "Warn", "Ignore"]


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch that was read: it can be tried on one state of the object after another."""

    type: str
    content: Any
    strict_errors: tuple[str, ...] = ()  # what strict field validation has to say about the patch itself
    has_nulls: bool = True  # whether it may have any

    @property
    def document(self) -> Any:
        """What the patch says, anew each time: it becomes part of objects that defaulting goes on to change."""
        return orjson.loads(orjson.dumps(self.content))

    def apply_to(self, obj: Object, type: Type) -> Object:
        """The patched object, yet to be decoded. Not for APPLY, which needs managed fields: see `apply.managed`."""
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
        """422 for a patch whose result cannot be decoded, or is not what strict validation allows."""
        shown = format_v(self.content) if self.type == STRATEGIC else orjson.dumps(patched).decode()
        return errors.invalid("", "", "", [field_errors.invalid("patch", shown, reason)])


def patch_type(content_type: str, *, custom: bool) -> str:
    """The patch format of a request; 415 if the resource does not take it."""
    named = content_type.partition(";")[0].strip()
    if named in CUSTOM_TYPES or (named == STRATEGIC and not custom):
        return named
    if custom:
        raise errors.unsupported_media_type(CUSTOM_TYPES)
    # Built-in resources are refused one step earlier upstream, and in other words.
    raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def check_options(type: str, field_manager: str, *, force: bool | None) -> None:
    """The query parameters of a patch; `force` is None when it was not given."""
    found = list(field_manager_errors(field_manager))
    if type == APPLY:
        if not field_manager:
            found.append(field_errors.required("fieldManager", "is required for apply patch"))
    elif force is not None:
        found.append(field_errors.forbidden("force", "may not be specified for non-apply patch"))
    if found:
        raise errors.invalid("PatchOptions", "meta.k8s.io", "", found)


def field_manager_errors(name: str) -> list[field_errors.FieldError]:
    """What is wrong with a `fieldManager` parameter, of any verb."""
    if name.isascii() and name.isprintable() and len(name) <= FIELD_MANAGER_LIMIT:
        return []
    errs = []
    if len(name.encode()) > FIELD_MANAGER_LIMIT:
        errs.append(field_errors.too_long("fieldManager", FIELD_MANAGER_LIMIT))
    for place, character in enumerate(name):
        if not character.isprintable():
            where = len(name[:place].encode())
            detail = f"invalid character U+{ord(character):04X} (at position {where})"
            errs.append(field_errors.invalid("fieldManager", name, detail))
    return errs


@lru_cache(maxsize=1024)
def field_manager(parameter: str, user_agent: str) -> str:
    """Who writes: the `fieldManager` parameter, or the program's name from the User-Agent."""
    if parameter:
        return parameter
    name = "".join(character for character in user_agent.partition("/")[0] if character.isprintable())
    return name.encode()[:FIELD_MANAGER_LIMIT].decode(errors="ignore")


def read_patch(type: str, body: bytes, validation: Validation = "Warn") -> Patch:
    """The patch of a request; 400 if its body is none."""
    try:
        if type == APPLY:
            return _read_apply(body, validation)
        return _read_json(type, body, lenient=validation == "Ignore")
    except (RecursionError, orjson.JSONEncodeError):
        # What is nested too deeply to be written again cannot be stored either.
        raise too_deep() from None


def _read_json(type: str, body: bytes, *, lenient: bool) -> Patch:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise errors.bad_request(_malformed(type, syntax_error(body), lenient=lenient)) from None
    if type == JSON:
        operations = json_patch.check_operations(document, lenient=lenient)
        unknown = [] if lenient else [f"json patch {one}" for one in json_patch.unknown_members(operations)]
        return Patch(type, operations, tuple(unknown))
    if document is None and type == STRATEGIC:
        document = {}
    if document is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(document, dict):
        what = f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(_malformed(type, what, lenient=lenient))
    return Patch(type, document, () if lenient else tuple(_repeated(body, document)), has_nulls=b"null" in body)


def _malformed(type: str, what: str, *, lenient: bool) -> str:
    if type == STRATEGIC or (type == JSON and lenient):
        return what
    return "Invalid JSON Patch" if lenient else f"error decoding patch: {what}"


def _read_apply(body: bytes, validation: Validation) -> Patch:
    document, repeated = _json_or_yaml(body, look_for_repeated=validation != "Ignore")
    if not isinstance(document, dict | None):
        what = f"json: cannot unmarshal {json_type(document)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {what}")
    if repeated and validation == "Strict":
        said = "\n  ".join(["yaml: unmarshal errors:", *repeated])
        raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {said}")
    return Patch(APPLY, document or {}, tuple(repeated) if validation == "Warn" else ())


def _json_or_yaml(body: bytes, *, look_for_repeated: bool) -> tuple[Any, list[str]]:
    """An applied document, and the keys it sets twice. Nearly everybody applies JSON, which is YAML and read faster."""
    try:
        document = orjson.loads(body)
        if not look_for_repeated or not may_repeat(body, document):
            return document, []
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml_to_json(body)
    except YamlConversionError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None


def _repeated(body: bytes, document: Object) -> list[str]:
    """`duplicate field "spec.x"` for each field the patch names twice."""
    if not may_repeat(body, document):
        return []
    found: list[str] = []
    _walk(json.loads(body, object_pairs_hook=Pairs), "", found)
    return found


def _walk(node: Any, path: str, found: list[str]) -> None:
    if isinstance(node, Pairs):
        times = Counter(key for key, _ in node)
        found += [f'duplicate field "{path}{key}"' for key, count in times.items() if count > 1]
        for key, inner in node:
            _walk(inner, f"{path}{key}.", found)
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            _walk(inner, f"{path[:-1]}[{index}].", found)
