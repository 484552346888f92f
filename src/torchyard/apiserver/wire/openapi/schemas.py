"""The schemas of an OpenAPI document: built-in definitions from their types, custom resources from their CRD."""

from __future__ import annotations

from typing import Any

from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import definition, kind_of
from torchyard.api.schema.descriptions import describe
from torchyard.api.schema.types import Type

Document = dict[str, Any]

REF = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_OBJECT_META = META + "ObjectMeta"
_FREE_OBJECTS = (META + "FieldsV1", META + "Patch", "io.k8s.apimachinery.pkg.runtime.RawExtension")
_OPENAPI_TYPES = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "string"}
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}}


class Schemas:
    """The schemas of a document: those that were added, and all that they refer to."""

    def __init__(self) -> None:
        self._schemas: dict[str, Document] = {}

    def add(self, root: str) -> None:
        pending = [root]
        while pending:
            name = pending.pop()
            if name not in self._schemas:
                self._schemas[name] = _definition(definition(name), pending)

    def add_custom(self, resource: Resource) -> None:
        """A custom resource and its list."""
        name = custom_name(resource.group, resource.version, resource.kind)
        self._schemas[name] = _custom(resource)
        self._schemas[name + "List"] = _custom_list(resource, name)
        for definition_name in (_OBJECT_META, META + "ListMeta"):
            self.add(definition_name)

    def sorted(self) -> Document:
        return dict(sorted(self._schemas.items()))


def custom_name(group: str, version: str, kind: str) -> str:
    """The name of a custom resource's schema: com.example.v1.Widget."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _definition(type: Type, pending: list[str]) -> Document:
    """A definition's schema; appends the definitions that it refers to to `pending`."""
    description, by_field = describe(type.name)
    schema: Document = {"description": description} if description else {}
    if type.shape != "object":
        return schema | _non_object(type)
    schema["type"] = "object"
    if type.fields:
        schema["properties"] = {
            name: _field_schema(child, pending, by_field.get(name, "")) for name, child in type.fields.items()
        }
    if type.required:
        schema["required"] = list(type.required)
    if type.atomic_map:
        schema["x-kubernetes-map-type"] = "atomic"
    kind = kind_of(type.name)
    if kind:
        schema["x-kubernetes-group-version-kind"] = [kind._asdict()]
    return schema


def _non_object(type: Type) -> Document:
    """Definitions that are not objects."""
    if type.shape == "int-or-string":
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if type.format == "quantity":
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if type.format == "duration":
        return {"type": "string"}
    if type.shape == "string":
        return {"type": "string", "format": "date-time"}
    return {"type": "object"} if type.name in _FREE_OBJECTS else {}


def _field_schema(type: Type, pending: list[str], description: str = "", *, element: bool = False) -> Document:
    """A field, or an element of a list or map."""
    schema: Document = {"description": description} if description else {}
    if type.has_default:
        schema["default"] = type.default
    elif (element or type.zero == "always") and not type.nullable and _has_zero(type):
        schema["default"] = _ZEROS[type.shape]
    if type.shape == "list" and type.items:
        schema |= {"type": "array", "items": _field_schema(type.items, pending, element=True)}
        if type.list_keys:
            schema["x-kubernetes-list-map-keys"] = list(type.list_keys)
        schema["x-kubernetes-list-type"] = type.list_type
    elif type.shape == "map" and type.values:
        schema |= {"type": "object", "additionalProperties": _field_schema(type.values, pending, element=True)}
    elif not type.name:
        schema |= _scalar(type)
    if type.patch_merge_key:
        schema["x-kubernetes-patch-merge-key"] = type.patch_merge_key
    if type.patch_strategy:
        schema["x-kubernetes-patch-strategy"] = ",".join(type.patch_strategy)
    if type.atomic_map is not (bool(type.name) and definition(type.name).atomic_map):
        schema["x-kubernetes-map-type"] = "atomic" if type.atomic_map else "granular"
    if type.name:
        pending.append(type.name)
        reference = {"$ref": REF + type.name}
        # a reference must stand alone; with other keywords it goes into allOf
        schema = {**schema, "allOf": [reference]} if schema else reference
    return schema


def _has_zero(type: Type) -> bool:
    """Whether the Go type's zero value is written as a plain zero."""
    return type.shape in _ZEROS and type.format in ("", "int32", "int64", "double")


def _scalar(type: Type) -> Document:
    if type.shape not in _OPENAPI_TYPES:
        return {"type": "object"} if type.shape == "any" else {}
    schema: Document = {"type": _OPENAPI_TYPES[type.shape]}
    if type.format:
        schema["format"] = type.format
    if type.enum:
        schema["enum"] = list(type.enum)
    return schema


def _custom(resource: Resource) -> Document:
    """A custom resource's own schema, with the fields that every object has."""
    schema = _complete(resource.custom.schema)
    own = {name: value for name, value in schema.get("properties", {}).items() if name != "metadata"}
    schema = {**schema, "type": "object", "properties": {**own, **_object_fields()}}
    return {**schema, "x-kubernetes-group-version-kind": [resource.gvk._asdict()]}


def _custom_list(resource: Resource, name: str) -> Document:
    items = {"type": "array", "items": {"$ref": REF + name}, "description": f"The {resource.plural} of this page."}
    fields = _object_fields()
    fields["metadata"] = {"description": describe(META + "ListMeta")[0], "allOf": [{"$ref": REF + META + "ListMeta"}]}
    return {
        "description": f"A list of {resource.plural}.",
        "type": "object",
        "required": ["items"],
        "properties": {**fields, "items": items},
        "x-kubernetes-group-version-kind": [resource.gvk._replace(kind=resource.list_kind)._asdict()],
    }


def _object_fields() -> Document:
    descriptions = describe("")[1]
    return {
        "apiVersion": {"description": descriptions["apiVersion"], "type": "string"},
        "kind": {"description": descriptions["kind"], "type": "string"},
        "metadata": {"description": descriptions["metadata"], "allOf": [{"$ref": REF + _OBJECT_META}]},
    }


def _complete(schema: Any) -> Any:
    """A CRD's schema, with the keywords written out that its x-kubernetes extensions imply."""
    if isinstance(schema, list):
        return [_complete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    completed = {name: _complete(value) if name in _NESTING else value for name, value in schema.items()}
    for name in ("properties", "patternProperties", "definitions"):
        if isinstance(completed.get(name), dict):
            completed[name] = {key: _complete(value) for key, value in completed[name].items()}
    if completed.get("x-kubernetes-int-or-string") and "anyOf" not in completed:
        completed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if completed.get("x-kubernetes-embedded-resource"):
        completed["properties"] = {**completed.get("properties", {}), **_object_fields()}
        completed["required"] = sorted({*completed.get("required", ()), "apiVersion", "kind"})
    return completed


_NESTING = frozenset(("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"))
