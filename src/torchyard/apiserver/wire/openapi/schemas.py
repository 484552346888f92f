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
    """The schemas a document needs: those asked for and, of these, all that they refer to."""

    def __init__(self) -> None:
        self._made: dict[str, Document] = {}

    def add(self, name: str) -> None:
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each not in self._made:
                self._made[each] = _definition(definition(each), waiting)

    def add_custom(self, one: Resource) -> None:
        """A custom resource and its list."""
        name = custom_name(one.group, one.version, one.kind)
        self._made[name] = _custom(one)
        self._made[name + "List"] = _custom_list(one, name)
        for each in (_OBJECT_META, META + "ListMeta"):
            self.add(each)

    def sorted(self) -> Document:
        return dict(sorted(self._made.items()))


def custom_name(group: str, version: str, kind: str) -> str:
    """What a custom resource's schema is called: com.example.v1.Widget."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _definition(type: Type, waiting: list[str]) -> Document:
    """A definition's schema; the definitions it refers to are added to `waiting`."""
    words, by_field = describe(type.name)
    made: Document = {"description": words} if words else {}
    if type.shape != "object":
        return made | _special(type)
    made["type"] = "object"
    if type.fields:
        made["properties"] = {
            name: _place(child, waiting, by_field.get(name, "")) for name, child in type.fields.items()
        }
    if type.required:
        made["required"] = list(type.required)
    if type.atomic_map:
        made["x-kubernetes-map-type"] = "atomic"
    kind = kind_of(type.name)
    if kind:
        made["x-kubernetes-group-version-kind"] = [kind._asdict()]
    return made


def _special(type: Type) -> Document:
    """Definitions that are no objects."""
    if type.shape == "int-or-string":
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if type.format == "quantity":
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if type.format == "duration":
        return {"type": "string"}
    if type.shape == "string":
        return {"type": "string", "format": "date-time"}
    return {"type": "object"} if type.name in _FREE_OBJECTS else {}


def _place(type: Type, waiting: list[str], words: str = "", *, element: bool = False) -> Document:
    """A field, or an element of a list or map."""
    made: Document = {"description": words} if words else {}
    if type.has_default:
        made["default"] = type.default
    elif (element or type.zero == "always") and not type.nullable and _has_zero(type):
        made["default"] = _ZEROS[type.shape]
    if type.shape == "list" and type.items:
        made |= {"type": "array", "items": _place(type.items, waiting, element=True)}
        if type.list_keys:
            made["x-kubernetes-list-map-keys"] = list(type.list_keys)
        made["x-kubernetes-list-type"] = type.list_type
    elif type.shape == "map" and type.values:
        made |= {"type": "object", "additionalProperties": _place(type.values, waiting, element=True)}
    elif not type.name:
        made |= _scalar(type)
    if type.patch_merge_key:
        made["x-kubernetes-patch-merge-key"] = type.patch_merge_key
    if type.patch_strategy:
        made["x-kubernetes-patch-strategy"] = ",".join(type.patch_strategy)
    if type.atomic_map is not (bool(type.name) and definition(type.name).atomic_map):
        made["x-kubernetes-map-type"] = "atomic" if type.atomic_map else "granular"
    if type.name:
        waiting.append(type.name)
        reference = {"$ref": REF + type.name}
        # a reference stands alone; with anything beside it, it is one of all that must hold
        made = {**made, "allOf": [reference]} if made else reference
    return made


def _has_zero(type: Type) -> bool:
    """Whether the Go type's zero value is written as such, and not in a form of its own."""
    return type.shape in _ZEROS and type.format in ("", "int32", "int64", "double")


def _scalar(type: Type) -> Document:
    if type.shape not in _OPENAPI_TYPES:
        return {"type": "object"} if type.shape == "any" else {}
    made: Document = {"type": _OPENAPI_TYPES[type.shape]}
    if type.format:
        made["format"] = type.format
    if type.enum:
        made["enum"] = list(type.enum)
    return made


def _custom(one: Resource) -> Document:
    """A custom resource as its author described it, with the fields that every object has."""
    schema = _author(one.custom.schema)
    own = {name: value for name, value in schema.get("properties", {}).items() if name != "metadata"}
    schema = {**schema, "type": "object", "properties": {**own, **_object_fields()}}
    return {**schema, "x-kubernetes-group-version-kind": [one.gvk._asdict()]}


def _custom_list(one: Resource, name: str) -> Document:
    items = {"type": "array", "items": {"$ref": REF + name}, "description": f"The {one.plural} of this page."}
    fields = _object_fields()
    fields["metadata"] = {"description": describe(META + "ListMeta")[0], "allOf": [{"$ref": REF + META + "ListMeta"}]}
    return {
        "description": f"A list of {one.plural}.",
        "type": "object",
        "required": ["items"],
        "properties": {**fields, "items": items},
        "x-kubernetes-group-version-kind": [one.gvk._replace(kind=one.list_kind)._asdict()],
    }


def _object_fields() -> Document:
    words = describe("")[1]
    return {
        "apiVersion": {"description": words["apiVersion"], "type": "string"},
        "kind": {"description": words["kind"], "type": "string"},
        "metadata": {"description": words["metadata"], "allOf": [{"$ref": REF + _OBJECT_META}]},
    }


def _author(schema: Any) -> Any:
    """An author's schema, with that written out which a structural schema leaves to its extensions."""
    if isinstance(schema, list):
        return [_author(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _author(value) if name in _NESTING else value for name, value in schema.items()}
    for name in ("properties", "patternProperties", "definitions"):
        if isinstance(made.get(name), dict):
            made[name] = {key: _author(value) for key, value in made[name].items()}
    if made.get("x-kubernetes-int-or-string") and "anyOf" not in made:
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if made.get("x-kubernetes-embedded-resource"):
        made["properties"] = {**made.get("properties", {}), **_object_fields()}
        made["required"] = sorted({*made.get("required", ()), "apiVersion", "kind"})
    return made


_NESTING = frozenset(("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"))
