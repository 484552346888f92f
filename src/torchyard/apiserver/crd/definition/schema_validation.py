"""Validation of a CRD's OpenAPI schema: supported keywords, list and map types, validation rules.

Mirrors the schema checks of apiextensions-apiserver, with its messages. `structural` has those on the structure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.field_path import FieldPathError, follow
from torchyard.apiserver.crd.schema.json_schema import Schema
from torchyard.apiserver.crd.schema.node import META_FIELDS

TYPES = ("array", "boolean", "integer", "number", "object", "string")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_RULES = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class _SchemaContext:
    """The position of a schema in the resource."""

    in_meta: bool = False
    no_defaults: str = ""  # why defaults are not allowed here


def schema_keyword_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors of a version's whole schema."""
    return _errors(schema, path, _SchemaContext(), is_root=True)


def has_unsupported(schema: Any) -> bool:
    """Whether the schema uses a keyword that no structural schema has; its structure is not validated then."""
    if isinstance(schema, list):
        return any(map(has_unsupported, schema))
    if not isinstance(schema, dict):
        return False
    if any(schema.get(name) for name in _UNSUPPORTED) or isinstance(schema.get("items"), list):
        return True
    named = schema.get("properties") or {}
    inner = [schema.get(name) for name in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf")]
    return any(map(has_unsupported, (*named.values(), *inner)))


def _errors(schema: Schema, path: str, context: _SchemaContext, *, is_root: bool = False) -> list[FieldError]:
    errs = _keyword_errors(schema, path, context)
    errs += _additional_errors(schema, path, context)
    for name, sub in (schema.get("properties") or {}).items():
        below = context
        if name in META_FIELDS and (is_root or schema.get("x-kubernetes-embedded-resource")):
            below = replace(below, in_meta=True)
            if is_root:
                below = replace(below, no_defaults=f"in top-level {name}")
        errs += _errors(sub, f"{path}.properties[{name}]", below)
    if schema.get("not") is not None:
        errs += _errors(schema["not"], f"{path}.not", context)
    for junctor in ("allOf", "oneOf", "anyOf"):
        for index, sub in enumerate(schema.get(junctor) or ()):
            errs += _errors(sub, f"{path}.{junctor}[{index}]", context)
    items = schema.get("items")
    if isinstance(items, dict):
        errs += _errors(items, f"{path}.items", context)
    elif isinstance(items, list):
        for index, sub in enumerate(items):
            errs += _errors(sub, f"{path}.items[{index}]", context)
    errs += _map_errors(schema, path)
    errs += _list_errors(schema, path)
    for index, rule in enumerate(schema.get(_RULES) or ()):
        errs += _rule_errors(rule, schema, f"{path}.{_RULES}[{index}]")
    return errs


def _keyword_errors(schema: Schema, path: str, context: _SchemaContext) -> list[FieldError]:
    errs: list[FieldError] = []
    kind = schema.get("type") or ""
    if kind and kind not in TYPES:
        errs.append(field_errors.not_supported(f"{path}.type", kind, TYPES))
    if schema.get("default") is not None and context.no_defaults:
        errs.append(field_errors.forbidden(f"{path}.default", f"must not be set {context.no_defaults}"))
    errs += [
        field_errors.forbidden(f"{path}.{name}", f"{name} is not supported")
        for name in _UNSUPPORTED
        if schema.get(name)
    ]
    if kind == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        errs.append(field_errors.forbidden(f"{path}.type", detail))
    if isinstance(schema.get("items"), list) and schema["items"]:
        errs.append(field_errors.forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if context.in_meta and schema.get("x-kubernetes-embedded-resource"):
        detail = "must not be used inside of resource meta"
        errs.append(field_errors.forbidden(f"{path}.x-kubernetes-embedded-resource", detail))
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errs.append(field_errors.forbidden(f"{path}.uniqueItems", detail))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        at = f"{path}.x-kubernetes-preserve-unknown-fields"
        errs.append(field_errors.invalid(at, False, "must be true or undefined"))
    return errs


def _additional_errors(schema: Schema, path: str, context: _SchemaContext) -> list[FieldError]:
    additional = schema.get("additionalProperties")
    if additional is None:
        return []
    errs: list[FieldError] = []
    at = f"{path}.additionalProperties"
    if schema.get("properties") and additional is not True:
        errs.append(field_errors.forbidden(at, "additionalProperties and properties are mutual exclusive"))
    if isinstance(additional, dict):
        if context.in_meta:
            context = replace(context, no_defaults="inside additionalProperties applying to object metadata")
        errs += _errors(additional, at, context)
    return errs


def _map_errors(schema: Schema, path: str) -> list[FieldError]:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return []
    errs = _require_type(schema, "object", "x-kubernetes-map-type", path)
    if map_type not in ("atomic", "granular"):
        errs.append(field_errors.not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")))
    return errs


def _require_type(schema: Schema, expected: str, extension: str, path: str) -> list[FieldError]:
    kind = schema.get("type") or ""
    if kind == expected:
        return []
    detail = f"must be {expected} if {extension} is specified"
    at = f"{path}.type"
    return [field_errors.invalid(at, kind, detail) if kind else field_errors.required(at, detail)]


def _list_errors(schema: Schema, path: str) -> list[FieldError]:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")
    errs: list[FieldError] = []
    at = f"{path}.x-kubernetes-list-type"
    items = schema.get("items")
    if list_type is not None:
        type_errors = _require_type(schema, "array", "x-kubernetes-list-type", path)
        errs += type_errors
        if not type_errors and list_type == "set" and isinstance(items, dict):
            errs += _set_item_errors(items, path)
        if list_type not in ("atomic", "set", "map"):
            errs.append(field_errors.not_supported(at, list_type, ("atomic", "set", "map")))
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        errs.append(field_errors.invalid(at, list_type, detail) if list_type else field_errors.required(at, detail))
    if list_type == "map":
        errs += _map_list_errors(schema, keys or [], path)
    if list_type in ("set", "map") and isinstance(items, dict):
        errs += _unique_item_errors(items, list_type, keys or [], path)
    return errs


def _set_item_errors(items: Schema, path: str) -> list[FieldError]:
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    kind, list_type = items.get("type"), items.get("x-kubernetes-list-type")
    if kind == "array" and list_type not in (None, "atomic"):
        return [field_errors.invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)]
    if kind == "object" and items.get("x-kubernetes-map-type") != "atomic":
        # as upstream: the value is the list type, which an object does not have
        return [field_errors.invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)]
    return []


def _map_list_errors(schema: Schema, keys: list[str], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        errs.append(field_errors.required(at, "must not be empty if x-kubernetes-list-type is map"))
    items = schema.get("items")
    if items is None:
        return [*errs, field_errors.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")]
    if not isinstance(items, dict):
        return errs
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        return [*errs, field_errors.invalid(f"{path}.items.type", items.get("type") or "", detail)]
    properties = items.get("properties") or {}
    shown = keys[: field_errors.MAX_ITEMS_SHOWN]
    for key, is_repeated in zip(keys, checks.repetitions(keys), strict=True):
        if key not in properties:
            errs.append(field_errors.invalid(at, shown, "entries must all be names of item properties"))
        elif properties[key].get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errs.append(field_errors.invalid(f"{path}.items.properties[{key}].type", "object", detail))
        if is_repeated:
            errs.append(field_errors.invalid(at, shown, "must not contain duplicate entries"))
    return errs


def _unique_item_errors(items: Schema, list_type: str, keys: list[str], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errs.append(field_errors.forbidden(f"{path}.items.nullable", detail))
    if list_type != "map":
        return errs
    for key in keys:
        sub = (items.get("properties") or {}).get(key)
        if sub is None:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in (items.get("required") or ()) and sub.get("default") is None:
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            errs.append(field_errors.required(f"{at}.default", detail))
        if sub.get("nullable"):
            detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errs.append(field_errors.forbidden(f"{at}.nullable", detail))
    return errs


def _rule_errors(rule: dict[str, Any], schema: Schema, path: str) -> list[FieldError]:
    """The errors of a rule that need no compilation."""
    errs: list[FieldError] = []
    text, message = rule.get("rule") or "", rule.get("message") or ""
    if not text.strip():
        errs.append(field_errors.required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errs.append(field_errors.invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _has_line_break(message.strip()):
        errs.append(field_errors.invalid(f"{path}.message", message, "must not contain line breaks"))
    elif _has_line_break(text.strip()) and not message.strip():
        errs.append(field_errors.required(f"{path}.message", "message must be specified if rule contains line breaks"))
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        detail = "messageExpression must be non-empty if specified"
        errs.append(field_errors.required(f"{path}.messageExpression", detail))
    reason = rule.get("reason")
    if reason is not None and reason not in REASONS:
        errs.append(field_errors.not_supported(f"{path}.reason", reason, REASONS))
    return errs + _field_path_errors(rule.get("fieldPath") or "", schema, f"{path}.fieldPath")


def _field_path_errors(field_path: str, schema: Schema, path: str) -> list[FieldError]:
    if not field_path:
        return []
    errs: list[FieldError] = []
    if not field_path.strip():
        errs.append(field_errors.invalid(path, field_path, "must be non-empty if specified"))
    if _has_line_break(field_path):
        errs.append(field_errors.invalid(path, field_path, "must not contain line breaks"))
    try:
        follow(field_path, schema)
    except FieldPathError:
        errs.append(field_errors.invalid(path, field_path, "must be a valid path"))
    return errs


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text
