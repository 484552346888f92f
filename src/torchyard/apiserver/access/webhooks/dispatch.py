"""Calling webhooks: who is called, in which order, and what their answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.apiserver.access.webhooks import admission_review
from torchyard.apiserver.access.webhooks.admission_review import (
    AdmissionResponse,
    InvalidWebhookResponse,
    UndecodablePatch,
)
from torchyard.apiserver.access.webhooks.client import Resolve, WebhookCallError, WebhookClient
from torchyard.apiserver.access.webhooks.matching import GetEquivalents, GetNamespace, Matcher
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.patch import json_patch

# All configurations of `mutatingwebhookconfigurations` or `validatingwebhookconfigurations`. Called for every write.
GetConfigurations = Callable[[str], Iterable[Object]]
DEFAULT_TIMEOUT = 10


@dataclass(slots=True)
class MutationResult:
    """The object as webhooks left it (the same one if none changed it), and what they want the client to know."""

    obj: Object | None
    warnings: list[str] = field(default_factory=list)


class WebhookDispatcher:
    """Admission webhooks. Needs nothing but look-ups; `resolve` finds services, `equivalents` other versions."""

    def __init__(
        self,
        configurations: GetConfigurations,
        namespace: GetNamespace,
        *,
        equivalents: GetEquivalents = lambda resource: (),
        resolve: Resolve | None = None,
    ) -> None:
        self._configurations = configurations
        self._matcher = Matcher(namespace, equivalents)
        self._client = WebhookClient(resolve)

    async def close(self) -> None:
        await self._client.close()

    async def mutate(self, asked: VersionedAttributes) -> MutationResult:
        """Let webhooks change the object, one after the other. Raises the first refusal."""
        admitted = MutationResult(asked.obj)
        webhooks = self._of("mutatingwebhookconfigurations", asked)
        curious: list[Object] = []  # called already, and want to see what later ones change
        again: list[Object] = []
        for webhook in webhooks:
            if await self._changes(webhook, asked, admitted):
                again = list(curious)
            if webhook.get("reinvocationPolicy") == "IfNeeded":
                curious.append(webhook)
        for webhook in again:
            await self._changes(webhook, asked, admitted)
        return admitted

    async def _changes(self, webhook: Object, asked: VersionedAttributes, admitted: MutationResult) -> bool:
        """Whether a webhook changed the object; `admitted` has the new one then."""
        current = asked.with_object(admitted.obj)
        answer = await self._ask(webhook, current, mutating=True)
        if answer is None:
            return False
        admitted.warnings.extend(answer.warnings)
        changed = _patched(webhook, current, answer)
        if changed == admitted.obj:
            return False
        admitted.obj = changed
        return True

    async def validate(self, asked: VersionedAttributes) -> list[str]:
        """Ask all validating webhooks at once; the warnings. Raises a refusal."""
        webhooks = self._of("validatingwebhookconfigurations", asked)
        if not webhooks:
            return []
        answers = await asyncio.gather(
            *(self._ask(one, asked, mutating=False) for one in webhooks), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [said for answer in answers if isinstance(answer, AdmissionResponse) for said in answer.warnings]

    def _of(self, plural: str, asked: VersionedAttributes) -> list[Object]:
        configurations = self._configurations(plural)
        if not configurations or asked.is_exempt:
            return []
        by_name = sorted(configurations, key=lambda one: str(one["metadata"]["name"]))
        return [webhook for one in by_name for webhook in one.get("webhooks") or ()]

    async def _ask(self, webhook: Object, asked: VersionedAttributes, *, mutating: bool) -> AdmissionResponse | None:
        """What a webhook says; None if it is not asked, or fails and may be ignored. Raises its refusal."""
        meant = self._matcher.match(asked, webhook)
        if meant is None or not _is_wanted(webhook, meant, asked):
            return None
        if asked.dry_run and webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f'admission webhook "{webhook["name"]}" does not support dry run')
        try:
            answer = await self._call(webhook, meant, asked, mutating=mutating)
        except _WebhookFailure as failure:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise errors.internal(f'failed calling webhook "{webhook["name"]}": {failure}') from None
        if not answer.allowed:
            raise _denied(webhook["name"], answer.status or {})
        return answer

    async def _call(
        self, webhook: Object, meant: VersionedAttributes, asked: VersionedAttributes, *, mutating: bool
    ) -> AdmissionResponse:
        question = admission_review.admission_request(meant, asked)
        timeout = webhook.get("timeoutSeconds") or DEFAULT_TIMEOUT
        try:
            body = await self._client.call(
                webhook.get("clientConfig") or {}, admission_review.encode_review(question), timeout
            )
            said = admission_review.decode_review(body)
        except (WebhookCallError, InvalidWebhookResponse) as failure:
            raise _WebhookFailure(f"failed to call webhook: {failure}") from None
        try:
            return admission_review.parse_response(said, question["uid"], mutating=mutating)
        except UndecodablePatch as failure:
            raise _WebhookFailure(f"received undecodable patch in webhook response: {failure}") from None
        except InvalidWebhookResponse as failure:
            raise _WebhookFailure(f"received invalid webhook response: {failure}") from None


class _WebhookFailure(Exception):
    """A webhook that gave no usable answer: its failure policy decides."""


def _is_wanted(webhook: Object, meant: VersionedAttributes, asked: VersionedAttributes) -> bool:
    conditions = webhook.get("matchConditions")
    if not conditions:
        return True
    from torchyard.apiserver.access.webhooks.expressions import ExpressionFailed, match_conditions_hold

    try:
        return match_conditions_hold(conditions, meant, asked)
    except ExpressionFailed as failure:
        if webhook.get("failurePolicy") == "Ignore":
            return False
        raise asked.forbidden(str(failure)) from None


def _denied(name: str, status: Object) -> StatusError:
    """A refusal in the webhook's own words; never with a status that would mean success."""
    denied = f'admission webhook "{name}" denied the request'
    reason = str(status.get("reason") or "")
    said = str(status.get("message") or reason)
    code = status.get("code")
    return StatusError(
        code if isinstance(code, int) and code >= 400 else 400,
        reason,
        f"{denied}: {said}" if said else f"{denied} without explanation",
        details=status.get("details"),
    )


def _patched(webhook: Object, asked: VersionedAttributes, answer: AdmissionResponse) -> Object | None:
    """The object after a webhook's patch, in the form the server keeps."""
    if not answer.patch:
        return asked.obj
    if asked.obj is None:
        said = f'admission webhook "{webhook["name"]}" attempted to modify the object'
        raise errors.internal(f"{said}, which is not supported for this operation")
    if answer.patch_type != "JSONPatch":
        raise errors.internal(
            f'failed calling webhook "{webhook["name"]}": unsupported patch type "{answer.patch_type}"'
        )
    try:
        patched = json_patch.apply_json_patch(asked.obj, json_patch.check_operations(answer.patch))
        return _normalised(patched, asked)
    except (StatusError, DecodeError) as error:
        raise errors.internal(error.message) from None


def _normalised(obj: Object, asked: VersionedAttributes) -> Object:
    """What a webhook leaves is read, and completed, as if a client had sent it."""
    resource = asked.resource
    if resource.custom is not None:
        resource.custom.prune(obj)
    elif resource.type is not None:
        obj, _ = decode(obj, resource.type)
    resource.strategy.default(obj)
    return obj
