"""Validation of one version of a CRD: schema, subresources, printer columns and selectable fields.

Messages name what all versions share at the top of the specification; `_SHARED` has the field names there.
"""

from __future__ import annotations

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.names import dns1035_problems
from torchyard.api.objects import Object
from torchyard.apiserver.crd.definition.default_validation import default_errors
from torchyard.apiserver.crd.definition.schema_validation import has_unsupported, schema_keyword_errors
from torchyard.apiserver.crd.definition.structural import structural_errors
from torchyard.apiserver.crd.schema.field_path import FieldPathError, follow
from torchyard.apiserver.crd.schema.node import compile_schema

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
# Upstream moves what all versions have in common out of them, and then finds either the schema or the selectable
# fields without the other. Its messages, by whether the selectable fields are shared:
_APART_FROM_SCHEMA = {
    False: "may only be set when `version.schema.openAPIV3Schema` is not included",
    True: "may only be set when validations.schema is included",
}
# The keywords that a root schema may use with a status subresource, in upstream's order and spelling.
_ROOT_KEYWORDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_ALLOWED_AT_ROOT = frozenset(name[0].lower() + name[1:] for name in _ROOT_KEYWORDS.split()) | {
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def versions_errors(versions: list[Object]) -> list[FieldError]:
    """The errors of spec.versions, shared parts included."""
    errs = [
        field_errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if not _schema(version)
    ]
    shared = {name for name in _SHARED if _is_shared(versions, name)}
    for index, version in enumerate(versions):
        errs += _version_errors(version, f"spec.versions[{index}]", shared)
    errs += _list_errors(versions)
    if shared:
        status = any(_has_status(version) for version in versions)
        errs += _content_errors(versions[0], shared, "spec", _SHARED, has_status=status)
    return errs


def _schema(version: Object) -> Object | None:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _has_status(version: Object) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _is_shared(versions: list[Object], name: str) -> bool:
    first = versions[0].get(name) if versions else None
    return bool(first) and all(version.get(name) == first for version in versions)


def _list_errors(versions: list[Object]) -> list[FieldError]:
    errs: list[FieldError] = []
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        errs.append(
            field_errors.invalid("spec.versions", _format_versions(versions), "must contain unique version names")
        )
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        errs.append(field_errors.invalid("spec.versions", _format_versions(versions), detail))
    if names and names[0] and (problems := dns1035_problems(names[0])):
        errs.append(field_errors.invalid("spec.version", names[0], ",".join(problems)))
    return errs


def _format_versions(versions: list[Object]) -> list[Object]:
    """Versions as upstream prints them in a message: with its internal field names, without the shared parts."""
    return [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for version in versions
    ]


def _version_errors(version: Object, path: str, shared: set[str]) -> list[FieldError]:
    errs: list[FieldError] = []
    name = version.get("name") or ""
    if problems := dns1035_problems(name):
        errs.append(field_errors.invalid(f"{path}.name", name, ",".join(problems)))
    warning = version.get("deprecationWarning")
    if warning is not None:
        problems = _warning_problems(warning, deprecated=bool(version.get("deprecated")))
        errs += [field_errors.invalid(f"{path}.deprecationWarning", warning, problem) for problem in problems]
    places = {key: key for key in _SHARED}
    return errs + _content_errors(version, set(places) - shared, path, places, has_status=_has_status(version))


def _warning_problems(warning: str, *, deprecated: bool) -> list[str]:
    if not deprecated:
        return ["can only be set for deprecated versions"]
    problems = []
    if len(warning.encode()) > 256:
        problems.append("must be <= 256 characters long")
    if not warning:
        problems.append("must not be an empty string")
    for index, letter in enumerate(warning):
        if not letter.isprintable():
            at = len(warning[:index].encode())
            problems.append(
                f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            )
            break
    return problems


def _content_errors(
    version: Object, parts: set[str], path: str, places: dict[str, str], *, has_status: bool
) -> list[FieldError]:
    """The errors of some parts of a version; `places` maps each part to its field name in messages."""
    errs: list[FieldError] = []
    schema = _schema(version)
    if "schema" in parts and schema is not None:
        errs += _schema_errors(schema, f"{path}.{places['schema']}.openAPIV3Schema", has_status=has_status)
    if "subresources" in parts:
        errs += _subresource_errors(version.get("subresources") or {}, f"{path}.{places['subresources']}")
    if "additionalPrinterColumns" in parts:
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            errs += _column_errors(column, f"{path}.{places['additionalPrinterColumns']}[{index}]")
    if "selectableFields" in parts and (fields := version.get("selectableFields")):
        at = f"{path}.{places['selectableFields']}"
        if "schema" in parts:
            errs += _selectable_errors(fields, schema or {}, at)
        else:
            errs.append(field_errors.invalid(at, "", _APART_FROM_SCHEMA[places is _SHARED]))
    return errs


def _schema_errors(schema: Object, path: str, *, has_status: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if has_status:
        kind = schema.get("type")
        if kind and kind != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            errs.append(field_errors.invalid(f"{path}.type", kind, detail))
        elif any(value and name not in _ALLOWED_AT_ROOT for name, value in schema.items()):
            detail = (
                f"only [{_ROOT_KEYWORDS}] fields are allowed at the root of the schema"
                " if the status subresource is enabled"
            )
            errs.append(field_errors.invalid(path, schema, detail))
    if schema.get("nullable"):
        errs.append(field_errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structure_errors: list[FieldError] = []
    if not has_unsupported(schema):
        structure_errors = structural_errors(schema, path) or default_errors(schema, path)
    keyword_errors = schema_keyword_errors(schema, path)
    errs += structure_errors + keyword_errors
    if not structure_errors and not has_unsupported(schema) and compile_schema(schema).rules_below:
        from torchyard.apiserver.crd.cel_rules.rule_errors import rule_errors

        errs += rule_errors(schema, path, keyword_errors)
    return errs


def _subresource_errors(subresources: Object, path: str) -> list[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return []
    errs: list[FieldError] = []
    for name, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        value, at = scale.get(name) or "", f"{path}.scale.{name}"
        if not value:
            if name != "labelSelectorPath":
                errs.append(field_errors.required(at))
        elif not value.startswith("."):
            errs.append(field_errors.invalid(at, value, "must be a simple json path starting with ."))
        elif not value.startswith(roots):
            under = "either .spec or .status" if len(roots) == 2 else roots[0].removesuffix(".")
            errs.append(field_errors.invalid(at, value, f"should be a json path under {under}"))
    return errs


def _column_errors(column: Object, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not column.get("name"):
        errs.append(field_errors.required(f"{path}.name"))
    kind, expected = column.get("type") or "", f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        errs.append(field_errors.required(f"{path}.type", expected))
    elif kind not in _COLUMN_TYPES:
        errs.append(field_errors.invalid(f"{path}.type", kind, expected))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        errs.append(field_errors.invalid(f"{path}.format", column["format"], detail))
    json_path = column.get("jsonPath") or ""
    if not json_path:
        errs.append(field_errors.required(f"{path}.JSONPath"))
    elif not json_path.startswith("."):
        errs.append(field_errors.invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with ."))
    return errs


def _selectable_errors(fields: list[Object], schema: Object, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    field_names: set[str] = set()
    for index, selectable in enumerate(fields):
        at, json_path = f"{path}[{index}].jsonPath", selectable.get("jsonPath") or ""
        if not json_path:
            errs.append(field_errors.required(at))
            continue
        try:
            field_name, target = follow(json_path, schema, brackets=False)
        except FieldPathError as error:
            errs.append(field_errors.invalid(at, json_path, f"is an invalid path: {error}"))
            continue
        if field_name.partition(".")[0] == "metadata":
            errs.append(field_errors.invalid(at, json_path, "must not point to fields in metadata"))
        if target.get("type") not in ("string", "boolean", "integer"):
            detail = (
                "must point to a field of type string, boolean or integer."
                " Enum string fields and strings with formats are allowed."
            )
            errs.append(field_errors.invalid(at, json_path, detail))
        if field_name in field_names:
            errs.append(field_errors.duplicate(at, json_path))
        field_names.add(field_name)
    if len(field_names) > _MAX_SELECTABLE:
        errs.append(field_errors.too_many(path, len(field_names), _MAX_SELECTABLE))
    return errs
