"""AdmissionReview: encodes the request to a webhook and decodes its response."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson

from torchyard.api.go_format import json_type
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.api.resources import Resource
from torchyard.apiserver.access.webhooks.response_decoder import ResponseTypeError, decode_response
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes

API_VERSION = "admission.k8s.io/v1"


class InvalidWebhookResponse(Exception):
    """A webhook response that cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    allowed: bool
    status: Object | None = None
    patch: list[Any] = field(default_factory=list)
    patch_type: str = ""
    warnings: tuple[str, ...] = ()


def admission_request(attributes: VersionedAttributes, original: VersionedAttributes) -> Object:
    """The `request` of a review. `original` is the write in the version that the client used."""
    resource, original_resource = attributes.resource, original.resource
    subresource = {"subResource": attributes.subresource} if attributes.subresource else {}
    review_request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": _kind(resource, attributes.subresource),
        "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
        **subresource,
        "requestKind": _kind(original_resource, attributes.subresource),
        "requestResource": {
            "group": original_resource.group,
            "version": original_resource.version,
            "resource": original_resource.plural,
        },
        **({"requestSubResource": attributes.subresource} if subresource else {}),
    }
    if attributes.name:
        review_request["name"] = attributes.name
    if attributes.namespace:
        review_request["namespace"] = attributes.namespace
    return review_request | {
        "operation": attributes.operation,
        "userInfo": attributes.user,
        "object": attributes.obj,
        "oldObject": attributes.old,
        "dryRun": attributes.dry_run,
        "options": attributes.options or None,
    }


def _kind(resource: Resource, subresource: str) -> Object:
    served_subresource = resource.subresources.get(subresource)
    gvk = served_subresource.gvk if served_subresource else resource.gvk
    return {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}


def encode_review(review_request: Object) -> bytes:
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": review_request})


_NO_KIND = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct "
    r'{{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }}'
)


def decode_review(body: bytes) -> Object:
    """Decode a response body. Raises InvalidWebhookResponse with the real server's messages."""
    try:
        review = orjson.loads(body.decode("utf-8", "replace"))
    except orjson.JSONDecodeError as error:
        raise InvalidWebhookResponse(f"couldn't get version/kind; json parse error: {error}") from None
    if review is None:
        return {}
    if not isinstance(review, dict):
        raise InvalidWebhookResponse(_NO_KIND.format(json_type(review)))
    version, kind = (review.get(name) or default for name, default in _TYPE_META.items())
    if not isinstance(version, str) or not isinstance(kind, str):
        raise InvalidWebhookResponse(_NO_KIND.format("object"))
    if kind != "AdmissionReview" or not version.startswith("admission.k8s.io/"):
        raise InvalidWebhookResponse(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
        )
    if version != API_VERSION:
        short = version.partition("/")[2]
        raise InvalidWebhookResponse(
            f"converting ({short}.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
        )
    try:
        return {"response": decode_response(review.get("response"))}
    except ResponseTypeError as error:
        raise InvalidWebhookResponse(str(error)) from None


# A response without these is taken for what was asked for.
_TYPE_META = {"apiVersion": API_VERSION, "kind": "AdmissionReview"}


def parse_response(review: Object, uid: str, *, mutating: bool) -> AdmissionResponse:
    """The response of a decoded review. Raises InvalidWebhookResponse when it does not match the request."""
    response = review.get("response")
    if response is None:
        raise InvalidWebhookResponse("webhook response was absent")
    if response.get("uid", "") != uid:
        raise InvalidWebhookResponse(f'expected response.uid="{uid}", got {quote(response.get("uid", ""))}')
    patch, patch_type = response.get("patch") or b"", response.get("patchType")
    if mutating and patch and patch_type is None:
        raise InvalidWebhookResponse("webhook returned response.patch but not response.patchType")
    if mutating and patch_type is not None and not patch:
        raise InvalidWebhookResponse("webhook returned response.patchType but not response.patch")
    if not mutating and patch:
        raise InvalidWebhookResponse("validating webhook may not return response.patch")
    if not mutating and patch_type is not None:
        raise InvalidWebhookResponse("validating webhook may not return response.patchType")
    return AdmissionResponse(
        allowed=response.get("allowed", False),
        status=response.get("status"),
        patch=_operations(patch) if patch and response.get("allowed") else [],
        patch_type=patch_type or "",
        warnings=tuple(warning or "" for warning in response.get("warnings") or ()),
    )


class UndecodablePatch(InvalidWebhookResponse):
    """A patch that is not a JSON list of operations."""


def _operations(patch: bytes) -> list[Any]:
    try:
        operations = orjson.loads(patch.decode("utf-8", "replace"))
    except orjson.JSONDecodeError as error:
        raise UndecodablePatch(str(error)) from None
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise UndecodablePatch(f"json: cannot unmarshal {json_type(operations)} into Go value of type jsonpatch.Patch")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise UndecodablePatch(
                f"json: cannot unmarshal {json_type(operation)} into Go value of type jsonpatch.Operation"
            )
    return [operation or {} for operation in operations]
