"""The rules for structural OpenAPI schemas: every field has a type, and alternatives only restrict values.

Mirrors apiextensions-apiserver, with its messages. Works on the uncompiled schema, because an invalid one may not
compile.
"""

from __future__ import annotations

from typing import Literal

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.apiserver.crd.schema.json_schema import Schema
from torchyard.apiserver.crd.schema.node import INT_OR_STRING
from torchyard.apiserver.golang.regexp import PatternError, pattern

Level = Literal["root", "item", "field"]

_NO_TYPE: dict[Level, str] = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
# The keywords that an alternative may not use, and the value they must have.
_FORBIDDEN = (
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
)


def structural_errors(schema: Schema, path: str) -> list[FieldError]:
    """Why a schema is not structural; empty if it is."""
    errs = _invariants(schema, "root", path)
    errs += _missing_in_value(schema, schema, path, path)
    return sorted(errs, key=str)


def sub_schemas(schema: Schema, path: str) -> list[tuple[Schema, Level, str]]:
    """The direct subschemas, without alternatives."""
    result: list[tuple[Schema, Level, str]] = []
    if isinstance(schema.get("items"), dict):
        result.append((schema["items"], "item", f"{path}.items"))
    for name, sub in (schema.get("properties") or {}).items():
        result.append((sub, "field", f"{path}.properties[{name}]"))
    if isinstance(schema.get("additionalProperties"), dict):
        result.append((schema["additionalProperties"], "field", f"{path}.additionalProperties"))
    return result


def _invariants(schema: Schema, level: Level, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    kind = schema.get("type") or ""
    if kind == "array" and schema.get("items") is None:
        errs.append(field_errors.required(f"{path}.items", "must be specified"))
    for sub, sub_level, sub_path in sub_schemas(schema, path):
        errs += _invariants(sub, sub_level, sub_path)
    if schema.get("additionalProperties") is not None and level == "root":
        errs.append(field_errors.forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    errs += _extension_errors(schema, path)
    errs += _alternatives(
        schema,
        path,
        skip_any=schema.get("anyOf") == INT_OR_STRING,
        skip_first_any=_first_all_of(schema).get("anyOf") == INT_OR_STRING,
    )
    errs += _type_errors(schema, level, path)
    errs += _meta_errors(schema, level, path)
    return errs


def _first_all_of(schema: Schema) -> Schema:
    return next(iter(schema.get("allOf") or ()), {})


def _extension_errors(schema: Schema, path: str) -> list[FieldError]:
    if not schema.get("x-kubernetes-int-or-string"):
        return []
    detail = "must be false if x-kubernetes-int-or-string is true"
    names = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
    return [field_errors.invalid(f"{path}.{name}", True, detail) for name in names if schema.get(name)]


def _type_errors(schema: Schema, level: Level, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    kind = schema.get("type") or ""
    embedded = schema.get("x-kubernetes-embedded-resource")
    preserve = schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        at = f"{path}.type"
        errs.append(field_errors.invalid(at, kind, detail) if kind else field_errors.required(at, detail))
    elif not kind and not schema.get("x-kubernetes-int-or-string") and not preserve:
        errs.append(field_errors.required(f"{path}.type", _NO_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        errs.append(field_errors.forbidden(f"{path}.additionalProperties", detail))
    if level == "root" and kind and kind != "object":
        errs.append(field_errors.invalid(f"{path}.type", kind, "must be object at the root"))
    if embedded and not preserve and not schema.get("properties"):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        errs.append(field_errors.required(f"{path}.properties", detail))
    return errs


def _meta_errors(schema: Schema, level: Level, path: str) -> list[FieldError]:
    """A schema cannot change apiVersion, kind and metadata of a resource; it can restrict only the name."""
    errs: list[FieldError] = []
    properties = schema.get("properties") or {}
    if level == "root" or schema.get("x-kubernetes-embedded-resource"):
        for name, expected in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            kind = (properties.get(name) or {}).get("type") or ""
            if name in properties and kind != expected:
                errs.append(field_errors.invalid(f"{path}.properties[{name}].type", kind, f"must be {expected}"))
    metadata = properties.get("metadata")
    if level == "root" and metadata is not None:
        specified = {name for name, value in metadata.items() if value not in (None, "", [], {}, False)} - {
            "type",
            "default",
        }
        described = set(metadata.get("properties") or ())
        if specified - {"properties"} or described - {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errs.append(field_errors.forbidden(f"{path}.properties[metadata]", detail))
    return errs


def _alternatives(schema: Schema, path: str, *, skip_any: bool, skip_first_any: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if not skip_any:
        for index, sub in enumerate(schema.get("anyOf") or ()):
            errs += _nested(sub, f"{path}.anyOf[{index}]", skip_any=False)
    for index, sub in enumerate(schema.get("allOf") or ()):
        errs += _nested(sub, f"{path}.allOf[{index}]", skip_any=skip_first_any and index == 0)
    for index, sub in enumerate(schema.get("oneOf") or ()):
        errs += _nested(sub, f"{path}.oneOf[{index}]", skip_any=False)
    if schema.get("not") is not None:
        errs += _nested(schema["not"], f"{path}.not", skip_any=False)
    if schema.get("pattern"):
        try:
            pattern(schema["pattern"])
        except PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            errs.append(field_errors.invalid(f"{path}.pattern", schema["pattern"], detail))
    return errs


def _nested(schema: Schema, path: str, *, skip_any: bool) -> list[FieldError]:
    errs = _alternatives(schema, path, skip_any=skip_any, skip_first_any=False)
    if isinstance(schema.get("items"), dict):
        errs += _nested(schema["items"], f"{path}.items", skip_any=False)
    for name, sub in (schema.get("properties") or {}).items():
        errs += _nested(sub, f"{path}.properties[{name}]", skip_any=False)
    for name, required_value in _FORBIDDEN:
        if schema.get(name) not in (None, "", False, []):
            errs.append(field_errors.forbidden(f"{path}.{name}", f"must be {required_value} to be structural"))
    if (schema.get("properties") or {}).get("metadata") is not None:
        errs.append(field_errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    return errs


def _missing_in_value(schema: Schema, structural: Schema | None, structural_path: str, path: str) -> list[FieldError]:
    """Fields in an alternative must be specified outside of it as well."""
    errs: list[FieldError] = []
    if schema.get("not") is not None:
        errs += _missing_in_schema(schema["not"], structural, structural_path, f"{path}.not")
    for junctor in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(junctor) or ()):
            errs += _missing_in_schema(sub, structural, structural_path, f"{path}.{junctor}[{index}]")
    return errs


def _missing_in_schema(schema: Schema, structural: Schema | None, structural_path: str, path: str) -> list[FieldError]:
    if structural is None:
        return [field_errors.required(structural_path, f"because it is defined in {path}")]
    errs = _missing_in_value(schema, structural, structural_path, path)
    if isinstance(schema.get("items"), dict):
        errs += _missing_in_schema(
            schema["items"], structural.get("items"), f"{structural_path}.items", f"{path}.items"
        )
    for name, sub in (schema.get("properties") or {}).items():
        counterpart = (structural.get("properties") or {}).get(name)
        errs += _missing_in_schema(
            sub, counterpart, f"{structural_path}.properties[{name}]", f"{path}.properties[{name}]"
        )
    return errs
