"""OpenAPI version 2, for old clients: all group-versions in one document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchyard.api.resources import Resource
from torchyard.apiserver.wire.openapi.document import INFO, document, versions
from torchyard.apiserver.wire.openapi.schemas import REF, Document

V2_PROTOBUF_REQUEST = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_PROTOBUF_RESPONSE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# What kubectl before 1.29 needs, and only in protobuf: swagger "2.0", info, no paths, no definitions.
V2_PROTOBUF = b"\x0a\x032.0" + b"\x12\x0f\x0a\x09Torchyard\x12\x02v1" + b"\x42\x00" + b"\x4a\x00"
_PRESERVES, _KINDS = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-group-version-kind"


def swagger(resources: Iterable[Resource]) -> Document:
    """/openapi/v2 as JSON."""
    served = list(resources)
    paths: Document = {}
    schemas: Document = {}
    for group, version in versions(served):
        v3 = document(served, group, version)
        if v3 is not None:
            paths |= {path: _v2_operations(operations) for path, operations in v3["paths"].items()}
            schemas |= v3["components"]["schemas"]
    definitions = {name: _v2_schema(schema) for name, schema in sorted(schemas.items())}
    return {"swagger": "2.0", "info": INFO, "paths": dict(sorted(paths.items())), "definitions": definitions}


def _v2_operations(operations: Document) -> Document:
    """Version 2 lists the content types of a body; clients look at nothing else of it."""
    converted: Document = {}
    for method, operation in operations.items():
        if not isinstance(operation, dict):
            continue
        body = operation.get("requestBody")
        v2 = {key: value for key, value in operation.items() if key not in ("requestBody", "responses", "parameters")}
        v2["parameters"] = [_v2_parameter(entry) for entry in operation.get("parameters", ())]
        if body:
            v2["consumes"] = sorted(body["content"])
        v2["produces"] = ["application/json", "application/yaml"]
        v2["responses"] = {
            code: {"description": entry["description"]} for code, entry in operation["responses"].items()
        }
        converted[method] = v2
    return converted


def _v2_parameter(parameter: Document) -> Document:
    return {"name": parameter["name"], "in": parameter["in"], "uniqueItems": True, **parameter["schema"]}


def _v2_open_schema(schema: Document) -> Document:
    """As upstream: old clients read an object with unknown fields right only if nothing is said about its fields."""
    if _KINDS in schema:
        return {"type": "object", _KINDS: schema[_KINDS]}
    return {key: value for key, value in schema.items() if key in ("description", _PRESERVES)}


def _v2_schema(schema: Any) -> Any:
    """Version 2 has neither oneOf nor a reference beside other keywords."""
    if isinstance(schema, list):
        return [_v2_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(_PRESERVES) is True:
        return _v2_open_schema(schema)
    if "oneOf" in schema or "anyOf" in schema:
        rest = {key: value for key, value in schema.items() if key not in ("oneOf", "anyOf")}
        return {**rest, "type": "string"}
    converted = {
        key: _v2_schema(value) for key, value in schema.items() if key not in ("allOf", "nullable", "properties")
    }
    if "properties" in schema:
        # the keys are names of fields, not keywords
        converted["properties"] = {name: _v2_schema(value) for name, value in schema["properties"].items()}
    for part in schema.get("allOf", ()):
        converted |= _v2_schema(part)
    if isinstance(converted.get("$ref"), str):
        converted["$ref"] = converted["$ref"].replace(REF, "#/definitions/")
        converted.pop("default", None)
    return converted
