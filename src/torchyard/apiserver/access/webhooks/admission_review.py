"""AdmissionReview: the question a webhook is asked, and what of its answer can be used."""

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
    """An answer that means nothing, and why."""


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    allowed: bool
    status: Object | None = None
    patch: list[Any] = field(default_factory=list)
    patch_type: str = ""
    warnings: tuple[str, ...] = ()


def admission_request(asked: VersionedAttributes, original: VersionedAttributes) -> Object:
    """The `request` of a review. `original` is what the client asked, in its own version."""
    shown, first = asked.resource, original.resource
    sub = {"subResource": asked.subresource} if asked.subresource else {}
    said: Object = {
        "uid": str(uuid.uuid4()),
        "kind": _kind(shown, asked.subresource),
        "resource": {"group": shown.group, "version": shown.version, "resource": shown.plural},
        **sub,
        "requestKind": _kind(first, asked.subresource),
        "requestResource": {"group": first.group, "version": first.version, "resource": first.plural},
        **({"requestSubResource": asked.subresource} if sub else {}),
    }
    if asked.name:
        said["name"] = asked.name
    if asked.namespace:
        said["namespace"] = asked.namespace
    return said | {
        "operation": asked.operation,
        "userInfo": asked.user,
        "object": asked.obj,
        "oldObject": asked.old,
        "dryRun": asked.dry_run,
        "options": asked.options or None,
    }


def _kind(resource: Resource, subresource: str) -> Object:
    known = resource.subresources.get(subresource)
    gvk = known.gvk if known else resource.gvk
    return {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}


def encode_review(asked: Object) -> bytes:
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": asked})


def decode_review(body: bytes) -> Object:
    """The review of an answer's body. Raises BadAnswer in the words of the real server's decoder."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidWebhookResponse(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(review, dict):
        raise InvalidWebhookResponse("couldn't get version/kind; json parse error: the answer is no object")
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
    """What a webhook answered. Raises BadAnswer where it answers something else than it was asked."""
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
        warnings=tuple(str(one) for one in response.get("warnings") or ()),
    )


class UndecodablePatch(InvalidWebhookResponse):
    """A patch that is not even JSON."""


def _operations(patch: str) -> list[Any]:
    try:
        operations = orjson.loads(base64.b64decode(patch, validate=True))
    except (binascii.Error, orjson.JSONDecodeError, TypeError) as error:
        raise UndecodablePatch(str(error)) from None
    if not isinstance(operations, list):
        raise UndecodablePatch("the patch is no list of operations")
    return operations
