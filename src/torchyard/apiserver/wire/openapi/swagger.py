"""OpenAPI version 2, which only old clients ask for: all group-versions in one document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchyard.api.resources import Resource
from torchyard.apiserver.wire.openapi.document import INFO, document, versions
from torchyard.apiserver.wire.openapi.schemas import REF, Document

V2_PROTOBUF_REQUEST = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_PROTOBUF_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# All that kubectl before 1.29 wants to see of it, and only in protobuf: swagger "2.0", info, no paths, no definitions.
V2_PROTOBUF = b"\x0a\x032.0" + b"\x12\x0f\x0a\x09Torchyard\x12\x02v1" + b"\x42\x00" + b"\x4a\x00"


def swagger(resources: Iterable[Resource]) -> Document:
    """/openapi/v2 as JSON, for clients of old: all group-versions in one document."""
    known = list(resources)
    paths: Document = {}
    schemas: Document = {}
    for group, version in versions(known):
        made = document(known, group, version)
        if made is not None:
            paths |= {path: _old_operations(operations) for path, operations in made["paths"].items()}
            schemas |= made["components"]["schemas"]
    definitions = {name: _old_schema(schema) for name, schema in sorted(schemas.items())}
    return {"swagger": "2.0", "info": INFO, "paths": dict(sorted(paths.items())), "definitions": definitions}


def _old_operations(operations: Document) -> Document:
    """Version 2 keeps bodies among the parameters; which content there may be is all that clients look at."""
    old: Document = {}
    for method, operation in operations.items():
        if not isinstance(operation, dict):
            continue
        body = operation.get("requestBody")
        kept = {key: value for key, value in operation.items() if key not in ("requestBody", "responses", "parameters")}
        kept["parameters"] = [_old_parameter(each) for each in operation.get("parameters", ())]
        if body:
            kept["consumes"] = sorted(body["content"])
        kept["produces"] = ["application/json", "application/yaml"]
        kept["responses"] = {
            code: {"description": each["description"]} for code, each in operation["responses"].items()
        }
        old[method] = kept
    return old


def _old_parameter(parameter: Document) -> Document:
    return {"name": parameter["name"], "in": parameter["in"], "uniqueItems": True, **parameter["schema"]}


def _old_schema(schema: Any) -> Any:
    """Version 2 knows neither oneOf nor a reference with something beside it."""
    if isinstance(schema, list):
        return [_old_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "oneOf" in schema or "anyOf" in schema:
        rest = {key: value for key, value in schema.items() if key not in ("oneOf", "anyOf")}
        return {**rest, "type": "string"}
    old = {key: _old_schema(value) for key, value in schema.items() if key not in ("allOf", "nullable", "properties")}
    if "properties" in schema:
        # the keys of this are names, whatever they are
        old["properties"] = {name: _old_schema(value) for name, value in schema["properties"].items()}
    for each in schema.get("allOf", ()):
        old |= _old_schema(each)
    if isinstance(old.get("$ref"), str):
        old["$ref"] = old["$ref"].replace(REF, "#/definitions/")
        old.pop("default", None)
    return old
