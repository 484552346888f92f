"""Checks the servers of APIServices and writes the condition `Available`."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.aggregation.api_services import (
    COLLECTION,
    GROUP,
    PLURAL,
    ApiServices,
    group_version,
)
from torchyard.apiserver.aggregation.availability import (
    LOCAL,
    PASSED,
    Availability,
    check_service,
    failed_discovery,
    with_condition,
)
from torchyard.apiserver.aggregation.backend import Backend, FrontProxyContexts, backend_of
from torchyard.apiserver.aggregation.forwarding import remote_headers
from torchyard.apiserver.aggregation.resource_list import listed_resources
from torchyard.apiserver.proxy.client_request import load_client
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.service_network.resolver import SERVICE_NAME, ServiceResolver
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.update import change_status

if TYPE_CHECKING:
    import ssl

    import aiohttp

log = logging.getLogger(__name__)

_AGGREGATOR = User("system:kube-aggregator", groups=(MASTERS,))
_CHECK_SECONDS = 5.0  # a server that takes longer is not available
_INTERVAL = 30.0  # between two checks of a server
_RETRY_SECONDS = 2.0  # between two checks of a server that is not available
_MAX_DISCOVERY_BYTES = 3 * 1024 * 1024


class AvailabilityController:
    """`run` until cancelled. Costs nothing as long as there is no APIService."""

    def __init__(self, registry: Registry, api_services: ApiServices, contexts: FrontProxyContexts, user: User) -> None:
        self._registry, self._api_services = registry, api_services
        self._contexts, self._user = contexts, user
        self._resolver = ServiceResolver(registry.lookup)
        self._due: dict[str, float] = {}  # when to check an APIService, by its name
        self._wake = asyncio.Event()
        registry.store.listen(COLLECTION, self._on_api_service)
        registry.store.listen("/services/", self._on_service)
        registry.store.listen("/endpointslices.discovery.k8s.io/", self._on_slice)

    def _on_api_service(self, event: StoreEvent) -> None:
        metadata = event.record.object()["metadata"]
        if event.change == "DELETED":
            self._due.pop(metadata["name"], None)
        elif event.previous is None or event.previous.object()["spec"] != event.record.object()["spec"]:
            self._check_soon(metadata["name"])

    def _on_service(self, event: StoreEvent) -> None:
        if self._due:
            metadata = event.record.object()["metadata"]
            self._check_backends_of(metadata["namespace"], metadata["name"])

    def _on_slice(self, event: StoreEvent) -> None:
        if self._due:
            metadata = event.record.object()["metadata"]
            self._check_backends_of(metadata["namespace"], (metadata.get("labels") or {}).get(SERVICE_NAME, ""))

    def _check_backends_of(self, namespace: str, name: str) -> None:
        for api_service in self._registry.lookup.list(GROUP, PLURAL):
            reference = api_service["spec"].get("service") or {}
            if (reference.get("namespace"), reference.get("name")) == (namespace, name):
                self._check_soon(api_service["metadata"]["name"])

    def _check_soon(self, name: str) -> None:
        self._due[name] = 0.0
        self._wake.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            due = [name for name, when in self._due.items() if when <= now]
            for name in due:
                self._due[name] = now + _INTERVAL
            results = await asyncio.gather(*(self._check(name) for name in due), return_exceptions=True)
            for name, error in zip(due, results, strict=True):
                if error is not None:  # a defect; the other APIServices are checked all the same
                    log.error("cannot check an APIService: name=%s", name, exc_info=error)
            await self._wait(min(self._due.values(), default=None))

    async def _wait(self, until: float | None) -> None:
        """Wait for a change, and at most until a time of the event loop."""
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _check(self, name: str) -> None:
        api_service = self._registry.lookup.get(GROUP, PLURAL, "", name)
        if api_service is None:
            return
        result = await self._availability(api_service)
        if not result.is_available and name in self._due:
            soon = asyncio.get_running_loop().time() + _RETRY_SECONDS
            self._due[name] = min(self._due[name], soon)
        current = self._registry.lookup.get(GROUP, PLURAL, "", name)
        if current is None or current["spec"] != api_service["spec"]:
            return  # changed meanwhile, and checked again
        await self._write(current, result)

    async def _availability(self, api_service: Object) -> Availability:
        if not api_service["spec"].get("service"):
            return LOCAL
        problem = check_service(api_service, self._registry.lookup)
        if problem is not None:
            return problem
        backend = backend_of(api_service, self._registry.lookup)
        group, version = group_version(api_service)
        if backend is None:
            return failed_discovery(f"/apis/{group}/{version}", "the Service has no address")
        url = f"https://{backend.netloc}/apis/{group}/{version}"
        try:
            resources = await self._read_resources(backend, url, self._contexts.unverified())
        except _FailedCheck as failure:
            return failed_discovery(url, str(failure))
        self._api_services.set_resources((group, version), resources)
        return PASSED

    async def _read_resources(self, backend: Backend, url: str, context: ssl.SSLContext) -> list[Object]:
        """The resources that the server lists. As upstream, its certificate is not verified here."""
        await load_client()
        import aiohttp

        from torchyard.apiserver.service_network.connector import DialingConnector

        async def dial(_host: str, _port: int) -> socket.socket:
            address, port = await self._resolver.resolve(backend.namespace, backend.name, backend.port)
            return await self._registry.dial(address, port)

        headers = {**dict(remote_headers(_AGGREGATOR)), "Accept": "application/json", "Accept-Encoding": "identity"}
        connector = DialingConnector(dial, keep_alive=False)
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                asyncio.timeout(_CHECK_SECONDS),
                session.get(
                    url, headers=headers, ssl=context, server_hostname=backend.server_name, allow_redirects=False
                ) as response,
            ):
                if not 200 <= response.status < 300:
                    raise _FailedCheck(f"bad status from {url}: {response.status}")
                return listed_resources(await _read_body(response, url))
        except TimeoutError:
            raise _FailedCheck(f'Get "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
            raise _FailedCheck(f'Get "{url}": {_reason(error, backend)}') from None

    async def _write(self, api_service: Object, result: Availability) -> None:
        now = to_rfc3339(self._registry.clock())
        if with_condition(api_service, result, now) == api_service:
            return
        name = api_service["metadata"]["name"]
        try:
            await change_status(
                self._registry, self._user, (GROUP, PLURAL), name, lambda old: with_condition(old, result, now)
            )
        except StatusError as error:
            if error.status not in (404, 409):
                log.warning("cannot write the condition of an APIService: name=%s error=%s", name, error)
            if name in self._due:  # otherwise it was deleted
                self._due[name] = asyncio.get_running_loop().time() + _RETRY_SECONDS


class _FailedCheck(Exception):
    """Why a server is not available."""


async def _read_body(response: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_DISCOVERY_BYTES:
            raise _FailedCheck(f"the response from {url} is larger than {_MAX_DISCOVERY_BYTES} bytes")
    return bytes(body)


def _reason(error: Exception, backend: Backend) -> str:
    os_error = getattr(error, "os_error", error)
    if isinstance(os_error, ConnectionRefusedError):
        return f"dial tcp {backend.netloc}: connect: connection refused"
    if isinstance(os_error, (socket.gaierror, UnicodeError)):  # no name at all, such as one with a long label
        return f"dial tcp: lookup {backend.host}: no such host"
    return str(error) or "EOF"
