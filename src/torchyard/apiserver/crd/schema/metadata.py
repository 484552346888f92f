"""Metadata, which no schema describes: a custom resource's own, and that of its embedded resources."""

from __future__ import annotations

import re
from typing import Any

from torchyard.api import errors, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.names import dns1035_problems, validate_metadata
from torchyard.api.objects import Object
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.apiserver.crd.schema.node import SchemaNode
from torchyard.apiserver.crd.schema.resource_type import OBJECT_META


class _InvalidMetadata(Exception):
    """A value that cannot be decoded as ObjectMeta."""


def coerce(obj: Object, root: SchemaNode, *, kind: str, version: str) -> list[str]:
    """Decode all metadata in place; returns the paths of the unknown fields that were dropped. Raises a 400."""
    unknown: list[str] = []
    try:
        if "metadata" in obj:
            _coerce_metadata(obj, "", unknown)
        if root.embedded_below:
            for name, sub in root.properties.items():
                if name in obj:
                    _coerce(obj[name], sub, name, unknown)
    except _InvalidMetadata as error:
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    return unknown


def _coerce(value: Any, node: SchemaNode, path: str, unknown: list[str]) -> None:
    if not node.embedded_below:
        return
    if isinstance(value, dict):
        if node.embedded:
            for name in ("apiVersion", "kind"):
                if name in value and not isinstance(value[name], str):
                    error = field_errors.invalid(f"{path}.{name}", value[name], "must be a string")
                    raise _InvalidMetadata(str(error))
            if "metadata" in value:
                _coerce_metadata(value, path, unknown)
        for name, sub_value in value.items():
            sub = node.properties.get(name)
            if sub is not None:
                _coerce(sub_value, sub, f"{path}.{name}", unknown)
            elif node.additional is not None:
                _coerce(sub_value, node.additional, f"{path}[{name}]", unknown)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            _coerce(item, node.items, f"{path}[{index}]", unknown)


def _coerce_metadata(holder: Object, path: str, unknown: list[str]) -> None:
    at = f"{path}.metadata" if path else "metadata"
    metadata = holder["metadata"]
    if metadata is None:
        del holder["metadata"]
        return
    try:
        if not isinstance(metadata, dict):
            json_kind = {"str": "string", "bool": "bool", "list": "array"}.get(type(metadata).__name__, "number")
            raise DecodeError(f"json: cannot unmarshal {json_kind} into Go value of type v1.ObjectMeta")
        holder["metadata"], warnings = decode(metadata, definition(OBJECT_META))
    except DecodeError as error:
        field_error = field_errors.invalid(at, metadata, error.message)
        raise _InvalidMetadata(str(field_error) if path else error.message) from None
    unknown.extend(f"{at}.{_field_of(warning)}" for warning in warnings)


def _field_of(warning: str) -> str:
    named = re.search('"(.*)"', warning)
    return named.group(1) if named else warning


def embedded_errors(value: Any, node: SchemaNode, path: str = "") -> list[FieldError]:
    """The errors of embedded resources: apiVersion, kind and metadata."""
    if not node.embedded_below:
        return []
    errs: list[FieldError] = []
    if isinstance(value, dict):
        if node.embedded:
            errs += _resource_errors(value, path)
        for name, sub_value in value.items():
            sub = node.properties.get(name)
            if sub is not None:
                errs += embedded_errors(sub_value, sub, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                errs += embedded_errors(sub_value, node.additional, f"{path}[{name}]")
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            errs += embedded_errors(item, node.items, f"{path}[{index}]")
    return errs


def _resource_errors(resource: Object, path: str) -> list[FieldError]:
    errs = [field_errors.required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in resource]
    version, kind = resource.get("apiVersion"), resource.get("kind")
    if version == "":
        errs.append(field_errors.invalid(f"{path}.apiVersion", version, "must not be empty"))
    elif isinstance(version, str) and version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        errs.append(field_errors.invalid(f"{path}.apiVersion", version, detail))
    if kind == "":
        errs.append(field_errors.invalid(f"{path}.kind", kind, "must not be empty"))
    elif isinstance(kind, str) and (problems := dns1035_problems(kind.lower())):
        detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
        errs.append(field_errors.invalid(f"{path}.kind", kind, detail))
    metadata = resource.get("metadata")
    if isinstance(metadata, dict):
        errs += _metadata_errors(metadata, f"{path}.metadata")
    return errs


def _metadata_errors(metadata: Object, path: str) -> list[FieldError]:
    named = {**metadata, "name": metadata.get("name") or "unnamed"}
    errs = validate_metadata(
        named, namespaced=bool(metadata.get("namespace")), name_rule="path-segment", built_in=False
    )
    return [FieldError(error.reason, path + error.field.removeprefix("metadata"), error.message) for error in errs]
