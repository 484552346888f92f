"""Calls admission webhooks in order and applies their responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.go_format import json_type
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.api.resources import Resource
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.apiserver.access.webhooks import admission_review
from torchyard.apiserver.access.webhooks.admission_review import (
    AdmissionResponse,
    InvalidWebhookResponse,
    UndecodablePatch,
)
from torchyard.apiserver.access.webhooks.client import ResolveService, WebhookCallError, WebhookClient
from torchyard.apiserver.access.webhooks.matching import EquivalentsGetter, Matcher, NamespaceGetter
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.patch import json_patch
from torchyard.apiserver.service_network.dialer import Dialer, dial_machine_network

log = logging.getLogger(__name__)

# Returns all `mutatingwebhookconfigurations` or `validatingwebhookconfigurations`. Called for every write.
ConfigurationsGetter = Callable[[str], Iterable[Object]]
DEFAULT_TIMEOUT = 10


@dataclass(slots=True)
class MutationResult:
    """The object after all mutating webhooks (the same object if none changed it), and their warnings."""

    obj: Object | None
    warnings: list[str] = field(default_factory=list)


# Converts an object to the version of a resource.
ConvertObject = Callable[[Resource, Object], Awaitable[Object]]


class WebhookDispatcher:
    """Calls admission webhooks. `resolve` finds a service's endpoint and `dial` connects to it.

    `equivalents` returns other versions of a resource, and `convert` converts to those with a conversion webhook.
    """

    def __init__(
        self,
        configurations: ConfigurationsGetter,
        namespace: NamespaceGetter,
        *,
        equivalents: EquivalentsGetter = lambda resource: (),
        resolve: ResolveService | None = None,
        dial: Dialer = dial_machine_network,
        convert: ConvertObject | None = None,
    ) -> None:
        self._configurations = configurations
        self._matcher = Matcher(namespace, equivalents)
        self._client = WebhookClient(resolve, dial)
        self._convert = convert

    async def close(self) -> None:
        await self._client.close()

    async def mutate(self, attributes: VersionedAttributes) -> MutationResult:
        """Run the mutating webhooks one after the other. Raises the first denial."""
        result = MutationResult(attributes.obj)
        webhooks = self._webhooks_for("mutatingwebhookconfigurations", attributes)
        reinvocable: list[Object] = []  # called already; called again if a later webhook changes the object
        reinvoked: list[Object] = []
        for webhook in webhooks:
            if await self._invoke_mutating(webhook, attributes, result):
                reinvoked = list(reinvocable)
            if webhook.get("reinvocationPolicy") == "IfNeeded":
                reinvocable.append(webhook)
        for webhook in reinvoked:
            await self._invoke_mutating(webhook, attributes, result)
        return result

    async def _invoke_mutating(self, webhook: Object, attributes: VersionedAttributes, result: MutationResult) -> bool:
        """Call one webhook and store its changes in `result`; returns whether there were any."""
        current = attributes.with_object(result.obj)
        versioned = await self._versioned(webhook, current)
        response = await self._invoke(webhook, versioned, current, mutating=True)
        if versioned is None or response is None:
            return False
        result.warnings.extend(response.warnings)
        if self._convert is not None and response.patch and _is_converted(versioned, current):
            patched = _apply_patch(webhook, versioned, response)
            patched = patched and await self._convert(current.resource, patched)
        else:
            patched = _apply_patch(webhook, current, response)
        if patched == result.obj:
            return False
        result.obj = patched
        return True

    async def validate(self, attributes: VersionedAttributes) -> list[str]:
        """Call all validating webhooks concurrently and return their warnings. Raises a denial."""
        webhooks = self._webhooks_for("validatingwebhookconfigurations", attributes)
        if not webhooks:
            return []
        responses = await asyncio.gather(
            *(self._validate(webhook, attributes) for webhook in webhooks), return_exceptions=True
        )
        for response in responses:
            if isinstance(response, BaseException):
                raise response
        return [
            warning
            for response in responses
            if isinstance(response, AdmissionResponse)
            for warning in response.warnings
        ]

    async def _validate(self, webhook: Object, attributes: VersionedAttributes) -> AdmissionResponse | None:
        return await self._invoke(webhook, await self._versioned(webhook, attributes), attributes, mutating=False)

    async def _versioned(self, webhook: Object, attributes: VersionedAttributes) -> VersionedAttributes | None:
        """The write in the version that the webhook asks for; None if it does not apply."""
        versioned = self._matcher.match(attributes, webhook)
        if versioned is None or self._convert is None or not _is_converted(versioned, attributes):
            return versioned
        objects = (attributes.obj, attributes.old)
        obj, old = [obj and await self._convert(versioned.resource, obj) for obj in objects]
        return replace(versioned, obj=obj, old=old)

    def _webhooks_for(self, plural: str, attributes: VersionedAttributes) -> list[Object]:
        configurations = self._configurations(plural)
        if not configurations or attributes.is_exempt:
            return []
        by_name = sorted(configurations, key=lambda configuration: str(configuration["metadata"]["name"]))
        return [webhook for configuration in by_name for webhook in configuration.get("webhooks") or ()]

    async def _invoke(
        self,
        webhook: Object,
        versioned: VersionedAttributes | None,
        attributes: VersionedAttributes,
        *,
        mutating: bool,
    ) -> AdmissionResponse | None:
        """A webhook's response; None if it does not apply, or fails with failurePolicy Ignore. Raises its denial."""
        if versioned is None or not _conditions_hold(webhook, versioned, attributes):
            return None
        if attributes.dry_run and webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f'admission webhook "{webhook["name"]}" does not support dry run')
        try:
            response = await self._call(webhook, versioned, attributes, mutating=mutating)
        except _WebhookFailure as failure:
            if webhook.get("failurePolicy") == "Ignore":
                log.warning("webhook failed, failing open: name=%s reason=%s", webhook["name"], quote(str(failure)))
                return None
            raise errors.internal(f'failed calling webhook "{webhook["name"]}": {failure}') from None
        if not response.allowed:
            raise _denied(webhook["name"], response.status or {})
        return response

    async def _call(
        self, webhook: Object, versioned: VersionedAttributes, attributes: VersionedAttributes, *, mutating: bool
    ) -> AdmissionResponse:
        review_request = admission_review.admission_request(versioned, attributes)
        timeout = webhook.get("timeoutSeconds") or DEFAULT_TIMEOUT
        try:
            body = await self._client.call(
                webhook.get("clientConfig") or {}, admission_review.encode_review(review_request), timeout
            )
            review = admission_review.decode_review(body)
        except (WebhookCallError, InvalidWebhookResponse) as failure:
            raise _WebhookFailure(f"failed to call webhook: {failure}") from None
        try:
            return admission_review.parse_response(review, review_request["uid"], mutating=mutating)
        except UndecodablePatch as failure:
            raise _WebhookFailure(f"received undecodable patch in webhook response: {failure}") from None
        except InvalidWebhookResponse as failure:
            raise _WebhookFailure(f"received invalid webhook response: {failure}") from None


def _is_converted(versioned: VersionedAttributes, attributes: VersionedAttributes) -> bool:
    """Whether more than the apiVersion differs."""
    return versioned.resource is not attributes.resource and versioned.resource.has_conversion_webhook


class _WebhookFailure(Exception):
    """A webhook that returned no usable response; its failurePolicy decides."""


def _conditions_hold(webhook: Object, versioned: VersionedAttributes, attributes: VersionedAttributes) -> bool:
    conditions = webhook.get("matchConditions")
    if not conditions:
        return True
    from torchyard.apiserver.access.webhooks.expressions import ExpressionFailed, match_conditions_hold

    try:
        return match_conditions_hold(conditions, versioned, attributes)
    except ExpressionFailed as failure:
        if webhook.get("failurePolicy") == "Ignore":
            return False
        raise attributes.forbidden(str(failure)) from None


def _denied(name: str, status: Object) -> StatusError:
    """The webhook's own status as an error; its code is never a success code."""
    prefix = f'admission webhook "{name}" denied the request'
    reason = status.get("reason") or ""
    message = status.get("message") or reason
    code = status.get("code") or 0
    return StatusError(
        code if 400 <= code < 1000 else 400,
        reason,
        f"{prefix}: {message}" if message else f"{prefix} without explanation",
        details=status.get("details"),
    )


def _apply_patch(webhook: Object, attributes: VersionedAttributes, response: AdmissionResponse) -> Object | None:
    """The object after a webhook's patch, decoded and defaulted."""
    if not response.patch:
        return attributes.obj
    if attributes.obj is None:
        message = f'admission webhook "{webhook["name"]}" attempted to modify the object'
        raise errors.internal(f"{message}, which is not supported for this operation")
    if response.patch_type != "JSONPatch":
        raise errors.internal(
            f'failed calling webhook "{webhook["name"]}": unsupported patch type "{response.patch_type}"'
        )
    try:
        patched = json_patch.apply_json_patch(attributes.obj, json_patch.check_operations(response.patch))
        return _normalize(patched, attributes)
    except (StatusError, DecodeError) as error:
        raise errors.internal(error.message) from None


def _normalize(obj: Any, attributes: VersionedAttributes) -> Object:
    """Decode and default an object as if a client had sent it."""
    resource = attributes.resource
    if not isinstance(obj, dict):
        raise DecodeError(f"json: cannot unmarshal {json_type(obj)} into Go value of type v1.{resource.kind}")
    version, kind = obj.get("apiVersion") or resource.api_version, obj.get("kind") or resource.kind
    if (version, kind) != (resource.api_version, resource.kind):
        raise DecodeError(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
        )
    if obj.get("metadata") is not None and not isinstance(obj["metadata"], dict):
        raise DecodeError(f"json: cannot unmarshal {json_type(obj['metadata'])} into Go value of type v1.ObjectMeta")
    patched: Object = {**obj, "apiVersion": version, "kind": kind, "metadata": obj.get("metadata") or {}}
    if resource.custom is not None:
        resource.custom.prune(patched)
    elif resource.type is not None:
        patched, _ = decode(patched, resource.type)
    resource.strategy.default(patched)
    return patched
