"""The console of a plane: requests of a signed-in user go to the router, which authorizes them as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from torchyard import __version__
from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.access.authentication import ANONYMOUS_NAME, SERVICE_ACCOUNT_PREFIX, User
from torchyard.apiserver.access.rbac import AuthorizerAttributes
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.router import Router
from torchyard.console.app import KUBERNETES, MAX_LOGIN_BYTES, ConsoleApp
from torchyard.console.forwarding import PASSED_HEADERS, safe_type
from torchyard.console.kubernetes_path import check_kubernetes_path
from torchyard.console.origin import LOOPBACK_HOSTS
from torchyard.console.request import (
    ConsoleIdentity,
    ConsoleRequest,
    ConsoleResponse,
    KubernetesRequest,
    SampleQuery,
)
from torchyard.console.sessions import ConsoleSessions
from torchyard.core.samples.owners import RESOURCES, sampled_jobs
from torchyard.yard.history import HistoryStore
from torchyard.yard.sample_collector import SampleCollector
from torchyard.yard.settings import PlaneSettings

# Cookies with this prefix are accepted by browsers only over TLS.
COOKIE = "__Secure-torchyard-console"
_MAX_CHANGE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ConsoleCredential:
    """Who obtained a one-time code. The token is authenticated again with every request, so it can be revoked."""

    user: User
    authorization: str = field(default="", repr=False)  # empty for a client certificate


class PlaneConsole:
    def __init__(
        self, router: Router, settings: PlaneSettings, samples: SampleCollector, *, hosts: frozenset[str]
    ) -> None:
        self._router = router
        sessions: ConsoleSessions[ConsoleCredential] = ConsoleSessions(
            COOKIE, user_of=lambda credential: credential.user.name
        )
        backend = PlaneBackend(router, settings, samples)
        self._app: ConsoleApp[User, ConsoleCredential] = ConsoleApp(
            backend, sessions, hosts=hosts | LOOPBACK_HOSTS, user_of=lambda user: user.name
        )

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The user of a session, if a page of the console sent the request."""
        try:
            session = self._app.session_of(ConsoleRequest("", "", "", headers, b"", is_tls=True))
        except StatusError:
            return None  # the app refuses it, with its reason, unless it asks for a page
        if session is None:
            return None
        credential = session.credential
        if credential.authorization:
            own = CIMultiDictProxy(CIMultiDict({"Authorization": credential.authorization}))
            try:
                self._router.access_control.authenticator.authenticate(own)
            except StatusError:
                return None
        return credential.user

    def authorize(self, method: str, path: str, query: Query, user: User, size: int) -> None:
        if path == "/login":
            limit = MAX_LOGIN_BYTES
        elif user.name == ANONYMOUS_NAME:
            raise errors.unauthorized()
        elif path.startswith(KUBERNETES):
            inner = path.removeprefix(KUBERNETES.rstrip("/"))
            check_kubernetes_path(inner, query.text)
            self._router.authorize(method, inner, query, user, size=size)
            return
        else:
            limit = _MAX_CHANGE_BYTES
        if not 0 <= size <= limit:
            raise errors.too_large(limit)

    async def handle(self, request: Request, path: str) -> Response:
        caller = None if request.user.name == ANONYMOUS_NAME else request.user
        # A session cannot issue codes: a caller with a cookie alone has no credential.
        authorization = request.headers.get("Authorization", "")
        has_cookie = not authorization and self._has_session(request)
        credential = ConsoleCredential(caller, authorization) if caller is not None and not has_cookie else None
        response = await self._app.handle(
            ConsoleRequest(request.method, path, request.query.text, request.headers, request.body, is_tls=True),
            caller,
            credential,
        )
        return Response(
            response.status,
            response.body,
            response.content_type,
            is_raw=not path.startswith(KUBERNETES),
            headers=response.headers,
            warnings=response.warnings,
        )

    def _has_session(self, request: Request) -> bool:
        return self._app.sessions.find(request.headers.get("Cookie", "")) is not None


class PlaneBackend:
    """What the console needs of the plane, with the rights of the caller."""

    def __init__(self, router: Router, settings: PlaneSettings, samples: SampleCollector) -> None:
        self._router, self._settings, self._samples = router, settings, samples

    async def identity(self, caller: User) -> ConsoleIdentity:
        return {
            "user": caller.name,
            "groups": list(caller.groups),
            "context": self._settings.name,
            "plane": True,
            "version": __version__,
            "namespace": _namespace_of(caller),
        }

    async def kubernetes(self, caller: User, request: KubernetesRequest) -> ConsoleResponse:
        headers = {"User-Agent": "torchyard-console", "Accept": request.accept, "Content-Type": request.content_type}
        response = await self._router.handle(
            Request(
                request.method,
                request.path,
                Query(request.query),
                CIMultiDictProxy(CIMultiDict(headers)),
                request.body,
                caller,
            )
        )
        content_type = safe_type(response.content_type)
        passed = {name: value for name, value in response.headers.items() if name.lower() in PASSED_HEADERS}
        return ConsoleResponse(response.status, response.body, content_type, passed, list(response.warnings))

    async def samples(self, caller: User, query: SampleQuery) -> dict[str, Any]:
        plural, _, group = query.resource.partition(".")
        self._check_get(caller, group, plural, query.namespace, query.name)
        jobs = sampled_jobs(query.namespace, query.resource, query.name)
        if not jobs:
            raise errors.bad_request(f"{query.resource} has no samples; use one of {', '.join(RESOURCES)}")
        return self._samples.table.document(jobs, query.since)

    async def history(self, caller: User) -> list[Mapping[str, Any]]:
        # in a thread: a busy database makes its reader wait
        records = await asyncio.to_thread(HistoryStore(self._settings.history).list)
        return [record for record in records if self._may_get_kind(caller, record["object"], record["name"])]

    def _may_get_kind(self, caller: User, job: Mapping[str, Any], name: str) -> bool:
        group, _, version = str(job.get("apiVersion", "")).rpartition("/")
        resource = self._router.registry.catalog.kind(group, version, str(job.get("kind", "")))
        if resource is None:
            return False
        attributes = AuthorizerAttributes(
            "get", resource.group, resource.plural, namespace=job["metadata"]["namespace"], name=name
        )
        return self._router.access_control.authorizer.authorize(caller, attributes).allowed

    def _check_get(self, caller: User, group: str, plural: str, namespace: str, name: str) -> None:
        attributes = AuthorizerAttributes("get", group, plural, namespace=namespace, name=name)
        self._router.access_control.authorizer.check(caller, attributes)


def _namespace_of(user: User) -> str:
    """The namespace of a service account; other users have none of their own."""
    if user.name.startswith(SERVICE_ACCOUNT_PREFIX):
        return user.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
    return "default"
