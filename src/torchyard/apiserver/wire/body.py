"""From a request's bytes to the object it means: JSON, YAML or protobuf, read the way a Go server reads it."""

from __future__ import annotations

from typing import Any

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.schema import document
from torchyard.api.schema.builtin import type_of
from torchyard.apiserver.patch.yaml_to_json import YamlConversionError, yaml_to_json
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.wire import protobuf

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
READABLE = (JSON, YAML, PROTOBUF)


def read_object(ctx: RequestContext, body: bytes, content_type: str, gvk: GroupVersionKind | None = None) -> Object:
    """The object of a create or update, of the kind the path stands for (or `gvk`, for subresources)."""
    if gvk is None and ctx.resource.custom is not None:
        return _custom(ctx, body, content_type)
    wanted = gvk or ctx.resource.gvk
    kind = type_of(wanted)
    assert kind is not None, f"no type for {wanted}"
    media = media_type(content_type)
    if media == JSON:
        obj, warnings = document.read(body, wanted, kind, ctx.validation)
    else:
        # A protobuf message cannot say what its type does not know.
        obj, warnings = document.read_object(parse(body, content_type, wanted), wanted, kind, ctx.validation)
    for sentence in warnings:
        ctx.warn(sentence)
    return obj


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or JSON


def parse(body: bytes, content_type: str, expected: GroupVersionKind) -> Object:
    """The document of a body, in whatever form it came."""
    media = media_type(content_type)
    if media == JSON:
        return document.parse(body, expected.kind)[0]
    if media in (YAML, "application/x-yaml", "text/yaml"):
        obj = parse_yaml(body)
        if not isinstance(obj, dict):
            raise errors.bad_request("the request body must be an object")
        return obj
    if media == PROTOBUF:
        return protobuf.decode(body, expected)
    raise errors.unsupported_media_type(READABLE)


def parse_yaml(body: bytes) -> Any:
    try:
        return yaml_to_json(body)[0]
    except YamlConversionError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from None


def _custom(ctx: RequestContext, body: bytes, content_type: str) -> Object:
    """An object of a custom kind: its own schema says which fields there are."""
    resource = ctx.resource
    if media_type(content_type) == PROTOBUF:
        raise errors.unsupported_media_type((JSON, YAML))
    if media_type(content_type) == JSON:
        obj, twice = document.read_custom(body, resource.gvk)
    else:
        obj, twice = parse(body, content_type, resource.gvk), []
        document.check_custom_kind(obj, resource.gvk)
    if ctx.subresource == "status" and resource.custom.is_normalized_status(obj.get("status")):
        ctx.settled = obj.pop("status")
    unknown = [f'unknown field "{path}"' for path in resource.custom.prune(obj)]
    if ctx.settled is not None:
        obj["status"] = ctx.settled
    for sentence in document.judged(twice + unknown, resource.gvk, ctx.validation):
        ctx.warn(sentence)
    return obj
