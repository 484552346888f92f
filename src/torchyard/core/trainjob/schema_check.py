"""Types of a document that no server has checked: a snapshot that users can edit, a manifest on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchyard.api.objects import Object

_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def object_schema(definition: Object) -> Object:
    """The schema of a CustomResourceDefinition, with the part of the metadata that is read here."""
    schema: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    text: Object = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    fields = {"name": text, "generateName": text, "namespace": text, "labels": texts, "annotations": texts}
    return {**schema, "properties": {**schema["properties"], "metadata": {"type": "object", "properties": fields}}}


def schema_problems(value: Any, schema: Object, path: str = "") -> Iterator[str]:
    """What of a value is missing, or has another type or pattern than its schema says."""
    if schema.get("x-kubernetes-int-or-string"):
        matches = isinstance(value, int | str) and not isinstance(value, bool)
    else:
        matches = isinstance(value, _PYTHON_TYPES.get(schema.get("type", ""), object)) and (
            schema.get("type") not in ("integer", "number") or not isinstance(value, bool)
        )
    if not matches:
        yield f"{path or 'it'} must be of type {schema.get('type', 'integer or string')}"
    elif isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path} {value!r} must match {schema['pattern']}"
    elif isinstance(value, dict):
        yield from (
            f"{path}.{name} is required".lstrip(".") for name in schema.get("required") or () if name not in value
        )
        fields, other = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in value.items():
            inner = fields.get(name, other)
            if isinstance(inner, dict):
                yield from schema_problems(item, inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from schema_problems(item, schema.get("items") or {}, f"{path}[{index}]")
