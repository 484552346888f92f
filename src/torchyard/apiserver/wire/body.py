"""Decodes request bodies: JSON, YAML or protobuf, with the rules of a Go server."""

from __future__ import annotations

from typing import Any

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.patch.patch_errors import YamlConversionError
from torchyard.api.schema import document
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.json_text import read_replacing_invalid
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.wire import protobuf

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
READABLE = (JSON, YAML, PROTOBUF)
_YAML_TYPES = (YAML, "application/x-yaml", "text/yaml")


def read_object(ctx: RequestContext, body: bytes, content_type: str, gvk: GroupVersionKind | None = None) -> Object:
    """The object of a create or update, of the resource's kind (or of `gvk`, for subresources)."""
    if gvk is None and ctx.resource.custom is not None:
        return _read_custom(ctx, body, content_type).obj
    expected = gvk or ctx.resource.gvk
    kind = type_of(expected)
    assert kind is not None, f"no type for {expected}"
    media = media_type(content_type)
    if media == JSON:
        obj, warnings = read_replacing_invalid(lambda text: document.read(text, expected, kind, ctx.validation), body)
    else:
        # A protobuf message has no unknown fields.
        parsed, duplicates = _parse_with_duplicates(body, media, expected)
        _report_yaml_duplicates(ctx, duplicates, expected)
        obj, warnings = document.read_object(parsed, expected, kind, ctx.validation)
    for sentence in warnings:
        ctx.warn(sentence)
    return obj


def read_draft(ctx: RequestContext, body: bytes, content_type: str) -> Draft:
    """The object of an update, as a draft."""
    if ctx.resource.custom is not None:
        return _read_custom(ctx, body, content_type)
    return Draft(read_object(ctx, body, content_type))


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or JSON


def parse(body: bytes, content_type: str, expected: GroupVersionKind) -> Object:
    """The document of a body, in any of the readable formats."""
    media = media_type(content_type)
    if media == JSON:
        return read_replacing_invalid(lambda text: document.parse(text, expected.kind)[0], body)
    return _parse_with_duplicates(body, media, expected)[0]


def _parse_with_duplicates(body: bytes, media: str, expected: GroupVersionKind) -> tuple[Object, list[str]]:
    """The document of a YAML or protobuf body, and a line for each key that YAML sets twice."""
    if media in _YAML_TYPES:
        obj, duplicates = _parse_yaml(body)
        if not isinstance(obj, dict):
            raise errors.bad_request("the request body must be an object")
        document.check_readable_kind(obj, body, expected.kind)
        return obj, duplicates
    if media == PROTOBUF:
        return protobuf.decode(body, expected), []
    raise errors.unsupported_media_type(READABLE)


def parse_yaml(body: bytes) -> Any:
    return _parse_yaml(body)[0]


def _parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    from torchyard.apiserver.patch.yaml_to_json import yaml_to_json

    try:
        return yaml_to_json(body)
    except YamlConversionError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from None


def _report_yaml_duplicates(ctx: RequestContext, duplicates: list[str], gvk: GroupVersionKind) -> None:
    """Warn of keys that are set twice, or reject them with the text of Go's YAML library."""
    if duplicates and ctx.validation == "Strict":
        lines = "".join(f"\n  {line}" for line in duplicates)
        document.apply_field_validation([f"yaml: unmarshal errors:{lines}"], gvk, ctx.validation)
    for line in document.apply_field_validation(duplicates, gvk, ctx.validation):
        ctx.warn(line)


def _read_custom(ctx: RequestContext, body: bytes, content_type: str) -> Draft:
    """A custom resource, pruned by its own schema."""
    resource = ctx.resource
    if media_type(content_type) == PROTOBUF:
        raise errors.unsupported_media_type((JSON, YAML))
    if media_type(content_type) == JSON:
        obj, duplicates = read_replacing_invalid(lambda text: document.read_custom(text, resource.gvk), body)
    else:
        obj, duplicates = _parse_with_duplicates(body, media_type(content_type), resource.gvk)
        _report_yaml_duplicates(ctx, duplicates, resource.gvk)
        duplicates = []
        document.check_custom_kind(obj, resource.gvk)
    normalized: Object = {}
    if ctx.subresource == "status" and resource.custom.is_normalized_status(obj.get("status")):
        normalized = {"status": obj.pop("status")}  # pruning would not change it
    unknown = [f'unknown field "{path}"' for path in resource.custom.prune(obj)]
    obj |= normalized
    for sentence in document.apply_field_validation(duplicates + unknown, resource.gvk, ctx.validation):
        ctx.warn(sentence)
    return Draft(obj, status_normalized=bool(normalized))
