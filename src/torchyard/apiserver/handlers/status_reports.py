"""The endpoint where the nodes of TrainJobs report their progress (KEP-2779), with upstream's responses.

A POST to the status of a TrainJob. A node authenticates with a token that is valid for the reports of its job only;
users who may update the status may report too.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from multidict import MultiMapping

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.trainjob import names
from torchyard.apiserver.access.access_control import AccessControl
from torchyard.apiserver.access.authentication import SERVICE_ACCOUNTS_GROUP, User
from torchyard.apiserver.access.rbac import AuthorizerAttributes
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.core.progress.endpoint import MAX_BODY_BYTES, parse_report
from torchyard.core.progress.reports import JobReference

_POD_NAME = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True, slots=True)
class StatusReporter(User):
    """The user of a token that is valid for the reports of one job, and for nothing else."""


def authenticate_report(
    access_control: AccessControl, headers: MultiMapping[str], certificate: bytes | None, job: tuple[str, str]
) -> User:
    """The user of a token for this job, or of this server's own credentials."""
    namespace, name = job
    user = access_control.authenticator.user_of_audience(headers, names.status_audience(namespace, name))
    if user is not None and f"{SERVICE_ACCOUNTS_GROUP}:{namespace}" in user.groups:
        return StatusReporter(user.name, user.uid, user.groups, user.extra)
    try:
        return access_control.authenticate(headers, certificate)
    except StatusError:
        raise _forbidden() from None


def authorize_report(access_control: AccessControl, user: User, job: tuple[str, str]) -> None:
    if isinstance(user, StatusReporter):
        return
    namespace, name = job
    attributes = AuthorizerAttributes(
        "update", names.GROUP, names.PLURAL, subresource="status", namespace=namespace, name=name
    )
    try:
        access_control.authorizer.check(user, attributes)
    except StatusError:
        raise _forbidden() from None


def _forbidden() -> StatusError:
    return StatusError(403, "Forbidden", "Forbidden")


def handle_report(registry: Registry, request: Request, job: tuple[str, str]) -> Response:
    namespace, name = job
    if len(request.body) > MAX_BODY_BYTES:
        raise errors.too_large(MAX_BODY_BYTES)
    resource = registry.catalog.find(names.GROUP, names.VERSION, names.PLURAL)
    record = registry.store.get(registry.key(resource, namespace, name)) if resource is not None else None
    if record is None:
        raise StatusError(404, "NotFound", "Train job not found")
    replica = request.user.extra.get(_POD_NAME, ("",))[0]
    reference = JobReference(names.KIND, namespace, name, record.object()["metadata"]["uid"])
    report, answer = parse_report(request.body, reference, registry.clock(), replica=replica)
    if report is not None:
        registry.progress.publish(report)
    return Response(200, orjson.dumps(answer), "application/json")
