"""AdmissionReview: encodes the request to a webhook and decodes its response."""

from __future__ import annotations

import base64
import binascii
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson

from torchyard.api.objects import Object
from torchyard.api.resources import Resource
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


def decode_review(body: bytes) -> Object:
    """Decode a response body. Raises InvalidWebhookResponse with the real server's messages."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidWebhookResponse(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(review, dict):
        raise InvalidWebhookResponse("couldn't get version/kind; json parse error: the response is not an object")
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if kind != "AdmissionReview" or not version.startswith("admission.k8s.io/"):
        raise InvalidWebhookResponse(f'no kind "{kind}" is registered for version "{version}"')
    if version != API_VERSION:
        short = version.partition("/")[2]
        raise InvalidWebhookResponse(
            f"converting ({short}.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
        )
    return review


def parse_response(review: Object, uid: str, *, mutating: bool) -> AdmissionResponse:
    """The response of a review. Raises InvalidWebhookResponse when it does not match the request."""
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidWebhookResponse("webhook response was absent")
    if response.get("uid") != uid:
        raise InvalidWebhookResponse(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    patch, patch_type = response.get("patch") or "", response.get("patchType") or ""
    if mutating and patch and not patch_type:
        raise InvalidWebhookResponse("webhook returned response.patch but not response.patchType")
    if mutating and patch_type and not patch:
        raise InvalidWebhookResponse("webhook returned response.patchType but not response.patch")
    status = response.get("status")
    return AdmissionResponse(
        allowed=response.get("allowed") is True,
        status=status if isinstance(status, dict) else None,
        patch=_operations(patch) if mutating and patch else [],
        patch_type=patch_type,
        warnings=tuple(str(warning) for warning in response.get("warnings") or ()),
    )


class UndecodablePatch(InvalidWebhookResponse):
    """A patch that is not valid JSON."""


def _operations(patch: str) -> list[Any]:
    try:
        operations = orjson.loads(base64.b64decode(patch, validate=True))
    except (binascii.Error, orjson.JSONDecodeError, TypeError) as error:
        raise UndecodablePatch(str(error)) from None
    if not isinstance(operations, list):
        raise UndecodablePatch("the patch is not a list of operations")
    return operations
