"""What one version of a definition holds: its schema, subresources, printer columns and selectable fields.

What all versions have in common is kept, and named in messages, at the top of the specification: `SHARED` says how.
"""

from __future__ import annotations

from typing import Any

from torchyard.api import faults
from torchyard.api.faults import Fault
from torchyard.api.names import dns1035_problems
from torchyard.apiserver.crd.definition.default_rules import default_faults
from torchyard.apiserver.crd.definition.schema_rules import has_unsupported, schema_rule_faults
from torchyard.apiserver.crd.definition.structural import structural_faults
from torchyard.apiserver.crd.schema.field_path import FieldPathError, follow
from torchyard.apiserver.crd.schema.node import compile_schema

Object = dict[str, Any]

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
# The keywords a root schema may have beside a status subresource, in upstream's order and spelling.
_ROOT_KEYWORDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_ALLOWED_AT_ROOT = frozenset(name[0].lower() + name[1:] for name in _ROOT_KEYWORDS.split()) | {
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


def versions_faults(versions: list[Object]) -> list[Fault]:
    """The faults of spec.versions, and of what it has in common."""
    found = [
        faults.required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if not _schema(version)
    ]
    shared = {name for name in _SHARED if _is_shared(versions, name)}
    for index, version in enumerate(versions):
        found += _version_faults(version, f"spec.versions[{index}]", shared)
    found += _list_faults(versions)
    if shared:
        status = any(_has_status(version) for version in versions)
        found += _content_faults(versions[0], shared, "spec", _SHARED, has_status=status)
    return found


def _schema(version: Object) -> Object | None:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _has_status(version: Object) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _is_shared(versions: list[Object], name: str) -> bool:
    first = versions[0].get(name) if versions else None
    return bool(first) and all(version.get(name) == first for version in versions)


def _list_faults(versions: list[Object]) -> list[Fault]:
    found: list[Fault] = []
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        found.append(faults.invalid("spec.versions", _shown(versions), "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        found.append(faults.invalid("spec.versions", _shown(versions), detail))
    if names and names[0] and (problems := dns1035_problems(names[0])):
        found.append(faults.invalid("spec.version", names[0], ",".join(problems)))
    return found


def _shown(versions: list[Object]) -> list[Object]:
    """Versions as upstream prints them in a message: its own field names, without what all have in common."""
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


def _version_faults(version: Object, path: str, shared: set[str]) -> list[Fault]:
    found: list[Fault] = []
    name = version.get("name") or ""
    if problems := dns1035_problems(name):
        found.append(faults.invalid(f"{path}.name", name, ",".join(problems)))
    warning = version.get("deprecationWarning")
    if warning is not None:
        problems = _warning_problems(warning, deprecated=bool(version.get("deprecated")))
        found += [faults.invalid(f"{path}.deprecationWarning", warning, problem) for problem in problems]
    places = {key: key for key in _SHARED}
    return found + _content_faults(version, set(places) - shared, path, places, has_status=_has_status(version))


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


def _content_faults(
    version: Object, parts: set[str], path: str, places: dict[str, str], *, has_status: bool
) -> list[Fault]:
    """The faults of some parts of a version; `places` says where messages look for each."""
    found: list[Fault] = []
    schema = _schema(version)
    if "schema" in parts and schema is not None:
        found += _schema_faults(schema, f"{path}.{places['schema']}.openAPIV3Schema", has_status=has_status)
    if "subresources" in parts:
        found += _subresource_faults(version.get("subresources") or {}, f"{path}.{places['subresources']}")
    if "additionalPrinterColumns" in parts:
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _column_faults(column, f"{path}.{places['additionalPrinterColumns']}[{index}]")
    if "selectableFields" in parts and (fields := version.get("selectableFields")):
        found += _selectable_faults(fields, schema or {}, f"{path}.{places['selectableFields']}")
    return found


def _schema_faults(schema: Object, path: str, *, has_status: bool) -> list[Fault]:
    found: list[Fault] = []
    if has_status:
        kind = schema.get("type")
        if kind and kind != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            found.append(faults.invalid(f"{path}.type", kind, detail))
        elif any(value and name not in _ALLOWED_AT_ROOT for name, value in schema.items()):
            detail = (
                f"only [{_ROOT_KEYWORDS}] fields are allowed at the root of the schema"
                " if the status subresource is enabled"
            )
            found.append(faults.invalid(path, schema, detail))
    if schema.get("nullable"):
        found.append(faults.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    shape: list[Fault] = []
    if not has_unsupported(schema):
        shape = structural_faults(schema, path) or default_faults(schema, path)
    said = schema_rule_faults(schema, path)
    found += shape + said
    if not shape and not has_unsupported(schema) and compile_schema(schema).rules_below:
        from torchyard.apiserver.crd.rules.definition import rule_faults

        found += rule_faults(schema, path, said)
    return found


def _subresource_faults(subresources: Object, path: str) -> list[Fault]:
    scale = subresources.get("scale")
    if scale is None:
        return []
    found: list[Fault] = []
    for name, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        value, at = scale.get(name) or "", f"{path}.scale.{name}"
        if not value:
            if name != "labelSelectorPath":
                found.append(faults.required(at))
        elif not value.startswith("."):
            found.append(faults.invalid(at, value, "must be a simple json path starting with ."))
        elif not value.startswith(roots):
            under = "either .spec or .status" if len(roots) == 2 else roots[0].removesuffix(".")
            found.append(faults.invalid(at, value, f"should be a json path under {under}"))
    return found


def _column_faults(column: Object, path: str) -> list[Fault]:
    found: list[Fault] = []
    if not column.get("name"):
        found.append(faults.required(f"{path}.name"))
    kind, wanted = column.get("type") or "", f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        found.append(faults.required(f"{path}.type", wanted))
    elif kind not in _COLUMN_TYPES:
        found.append(faults.invalid(f"{path}.type", kind, wanted))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        found.append(faults.invalid(f"{path}.format", column["format"], detail))
    json_path = column.get("jsonPath") or ""
    if not json_path:
        found.append(faults.required(f"{path}.JSONPath"))
    elif not json_path.startswith("."):
        found.append(faults.invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with ."))
    return found


def _selectable_faults(fields: list[Object], schema: Object, path: str) -> list[Fault]:
    found: list[Fault] = []
    seen: set[str] = set()
    for index, one in enumerate(fields):
        at, json_path = f"{path}[{index}].jsonPath", one.get("jsonPath") or ""
        if not json_path:
            found.append(faults.required(at))
            continue
        try:
            written, target = follow(json_path, schema, brackets=False)
        except FieldPathError as error:
            found.append(faults.invalid(at, json_path, f"is an invalid path: {error}"))
            continue
        if written.partition(".")[0] == "metadata":
            found.append(faults.invalid(at, json_path, "must not point to fields in metadata"))
        if target.get("type") not in ("string", "boolean", "integer"):
            detail = (
                "must point to a field of type string, boolean or integer."
                " Enum string fields and strings with formats are allowed."
            )
            found.append(faults.invalid(at, json_path, detail))
        if written in seen:
            found.append(faults.duplicate(at, json_path))
        seen.add(written)
    if len(seen) > _MAX_SELECTABLE:
        found.append(faults.too_many(path, len(seen), _MAX_SELECTABLE))
    return found
