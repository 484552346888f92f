"""Building blocks of structural schemas, for our own CustomResourceDefinitions."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.types import Type

_QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
QUANTITY: Object = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": _QUANTITY_PATTERN,
}
STRING: Object = {"type": "string"}
INT32: Object = {"type": "integer", "format": "int32"}
# A server does not check the format. Upstream's webhooks cannot decode a larger number.
BOUNDED_INT32: Object = {**INT32, "minimum": -(2**31), "maximum": 2**31 - 1}
INT64: Object = {"type": "integer", "format": "int64"}
TIME: Object = {"type": "string", "format": "date-time"}
BOOLEAN: Object = {"type": "boolean"}
STRINGS: Object = {"type": "array", "items": STRING, "nullable": True}
STRING_MAP: Object = {"type": "object", "additionalProperties": STRING, "nullable": True}

_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TEMPLATE_METADATA: Object = {
    "annotations": {"type": "object", "additionalProperties": STRING},
    "finalizers": {"type": "array", "items": STRING},
    "labels": {"type": "object", "additionalProperties": STRING},
    "name": STRING,
    "namespace": STRING,
}


def with_description(text: str, schema: Object) -> Object:
    return {"description": text, **schema}


def record(properties: Object, *required: str) -> Object:
    schema: Object = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def map_list(items: Object, key: str = "name", **extra: object) -> Object:
    """A list whose items are identified by a key."""
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {"type": "array", "items": items, **keys, **extra}


def cel_rule(rule: str, message: str) -> Object:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message}]}


def from_type(type: Type) -> Object:
    """Convert a built-in type to a structural schema. Optional fields may be null, which Go reads as omitted."""
    if type.shape == "object":
        fields = {name: _optional(child, name in type.required) for name, child in type.fields.items()}
        return record(fields, *type.required)
    if type.shape == "map" and type.values:
        return {"type": "object", "additionalProperties": from_type(type.values)}
    if type.shape == "list" and type.items:
        return {"type": "array", "items": from_type(type.items)}
    if type.shape == "any":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if type.format == "quantity":
        return QUANTITY
    if type.shape == "int-or-string":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    has_known_format = type.format in ("int32", "int64", "date-time", "byte", "double")
    return {"type": type.shape, "format": type.format} if has_known_format else {"type": type.shape}


def from_go_type(type: Type) -> Object:
    """Convert a built-in type as controller-gen does: with list and map types and defaults, and nothing nullable.

    Of an object's metadata only the fields that a template may set remain.
    """
    schema = _go_shape(type)
    return {**schema, "default": type.default} if type.has_default else schema


def _go_shape(type: Type) -> Object:
    if type.name == _OBJECT_META:
        return record(_TEMPLATE_METADATA)
    if type.shape == "object":
        schema = record({name: from_go_type(child) for name, child in type.fields.items()}, *type.required)
        return {**schema, "x-kubernetes-map-type": "atomic"} if type.atomic_map else schema
    if type.shape == "map" and type.values:
        schema = {"type": "object", "additionalProperties": from_go_type(type.values)}
        return {**schema, "x-kubernetes-map-type": "atomic"} if type.atomic_map else schema
    if type.shape == "list" and type.items:
        schema = {"type": "array", "items": from_go_type(type.items), "x-kubernetes-list-type": type.list_type}
        return {**schema, "x-kubernetes-list-map-keys": list(type.list_keys)} if type.list_keys else schema
    return from_type(type)


def _optional(type: Type, required: bool) -> Object:
    schema = from_type(type)
    return schema if required else {**schema, "nullable": True}


def template() -> Object:
    """Return the schema of a pod template, including the metadata that is copied to pods."""
    metadata = {
        "annotations": STRING_MAP,
        "finalizers": STRINGS,
        "labels": STRING_MAP,
        "name": STRING,
        "namespace": STRING,
    }
    pod = from_type(definition("io.k8s.api.core.v1.PodSpec"))
    return record({"metadata": {**record(metadata), "nullable": True}, "spec": pod})
