"""The paths of the scale subresource in a custom resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.apiserver.golang.values import go_number, json_type

MAX_REPLICAS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The dotted paths of a CRD's scale subresource; the selector's may be empty."""

    spec: str
    status: str
    selector: str

    @classmethod
    def of(cls, definition: Object | None) -> ScalePaths | None:
        if not definition:
            return None
        return cls(
            definition.get("specReplicasPath", ""),
            definition.get("statusReplicasPath", ""),
            definition.get("labelSelectorPath") or "",
        )


def read_path(obj: Object, path: str) -> Any:
    """The value at a dotted path, or None."""
    value: Any = obj
    for name in path.removeprefix(".").split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def write_path(obj: Object, path: str, value: Any) -> None:
    """Set the value at a dotted path, creating missing objects on the way."""
    *parents, last = path.removeprefix(".").split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = value


def scale_errors(obj: Object, paths: ScalePaths | None, *, status_only: bool = False) -> list[FieldError]:
    """The errors of replica counts and selectors that a Scale cannot represent."""
    if paths is None:
        return []
    errs = [] if status_only else _count_errors(obj, paths.spec)
    errs += _count_errors(obj, paths.status)
    selector = read_path(obj, paths.selector) if paths.selector else None
    if selector is not None and not isinstance(selector, str):
        errs.append(field_errors.invalid(paths.selector, "", _not_of_type(paths.selector, selector, "string")))
    return errs


def _count_errors(obj: Object, path: str) -> list[FieldError]:
    count = read_path(obj, path)
    if count is None:
        return []
    if isinstance(count, bool) or not isinstance(count, int):
        return [field_errors.invalid(path, 0, _not_of_type(path, count, "int64"))]
    if count < 0:
        return [field_errors.invalid(path, count, "should be a non-negative integer")]
    if count > MAX_REPLICAS:
        return [field_errors.invalid(path, count, f"should be less than or equal to {MAX_REPLICAS}")]
    return []


_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64", "integer": "int64"}


def _not_of_type(path: str, value: Any, expected: str) -> str:
    kind = json_type(value)
    go = {"object": "map[string]interface {}", "array": "[]interface {}"}.get(kind) or _GO_TYPES[kind]
    value_text = go_number(value) if isinstance(value, float) else field_errors.format_value(value).strip('"')
    return f"{path} accessor error: {value_text} is of the type {go}, expected {expected}"
