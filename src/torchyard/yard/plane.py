"""The one-machine plane: store, API server, controllers and node, wired, started and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from torchyard.api.cluster import plane_messages as messages
from torchyard.api.errors import YardError
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access import certificate_check
from torchyard.apiserver.access.access_control import AccessControl
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.authentication import (
    MASTERS,
    CertificateAuthenticator,
    RequestAuthenticator,
    StaticTokenAuthenticator,
    User,
    read_token_file,
)
from torchyard.apiserver.access.certificate_dir import CertificateDir, own_names
from torchyard.apiserver.access.rbac import Authorizer
from torchyard.apiserver.access.service_account_tokens import ISSUER, ServiceAccountTokens
from torchyard.apiserver.access.tls import renew_certificates, server_context
from torchyard.apiserver.access.webhooks.strategies import with_expression_checks
from torchyard.apiserver.admission.controller import AdmissionController
from torchyard.apiserver.aggregation.serving import authentication_config, serve_aggregated
from torchyard.apiserver.crd.controller import CrdController, with_crd_strategy
from torchyard.apiserver.crd.conversion.webhook import WebhookConverter
from torchyard.apiserver.handlers.non_resource import NonResourceHandler
from torchyard.apiserver.http.limits import limits_for
from torchyard.apiserver.http.metrics import HttpMetrics
from torchyard.apiserver.http.server import HttpServer
from torchyard.apiserver.lifecycle.bootstrap import bootstrap, ensure_node
from torchyard.apiserver.lifecycle.compactor import Compactor
from torchyard.apiserver.lifecycle.owned_objects import OwnedObjects
from torchyard.apiserver.lifecycle.service_addresses import ServiceAddresses
from torchyard.apiserver.metrics.event_loop import EventLoopMetrics
from torchyard.apiserver.metrics.requests import RequestMetrics
from torchyard.apiserver.registry.catalog import Catalog
from torchyard.apiserver.registry.lookup import StoreLookup
from torchyard.apiserver.registry.registry import Registry, utc_now
from torchyard.apiserver.registry.service_allocator import ServiceAllocator
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.routing.router import Router
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.verbs.pod_template_cache import PodTemplateCache
from torchyard.kube.client import JSON, Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.local import HandlerResponse, LocalTransport
from torchyard.kube.sample_store import SampleStore
from torchyard.kube.supervisor import Part, PartFailure, Supervisor, describe
from torchyard.kube.supervisor_metrics import supervisor_metrics
from torchyard.yard import python_choice
from torchyard.yard.console_mount import ConsoleMount
from torchyard.yard.controller_log import ControllerLog
from torchyard.yard.listen_address import resolve_listen_address
from torchyard.yard.loading import load
from torchyard.yard.lock import PlaneProcess, StateLock
from torchyard.yard.open_files import open_file_limit
from torchyard.yard.plane_setup import check_settings, node_parts, owned_objects, served_resources
from torchyard.yard.sample_collector import SampleCollector
from torchyard.yard.selection import KNOWN, SCHEDULER, select_controllers
from torchyard.yard.settings import PlaneSettings, ensure_state_directory
from torchyard.yard.status import PARTS_PATH, PlanePart
from torchyard.yard.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from torchyard.kube.informer_factory import InformerFactory
    from torchyard.node.agent import NodeAgent

log = logging.getLogger(__name__)

ADMIN = User("yard-admin", groups=(MASTERS, "system:authenticated"))
# What events about the plane itself refer to.
_PLANE_OBJECT = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
# Why an address cannot be bound, and what to do about it.
_LISTEN_ERRORS = {
    errno.EADDRINUSE: ("the port is in use", "choose another with --port (0 takes a free one)"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "name one of its addresses with --host (0.0.0.0: all)"),
    errno.EACCES: ("the port is privileged", "choose one above 1023 with --port"),
}


class Plane:
    """`async with Plane(settings) as plane:` runs it; `plane.url` is its URL.

    `on_ready` is called with the URL when the API server answers. Controllers and node start after that: their modules
    are most of what a plane loads.
    """

    def __init__(
        self,
        settings: PlaneSettings,
        *,
        on_ready: Callable[[str], None] = lambda _url: None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.settings, self._clock = settings, clock
        self._on_ready = on_ready
        self.url = ""
        self._closing = contextlib.AsyncExitStack()
        self.agent: NodeAgent | None = None
        self.stops_pods = False  # whether pods are stopped with the plane, and how many were
        self.stopped_pods = 0
        self._failed: asyncio.Future[None] | None = None
        self.supervisor = Supervisor(self._part_failed)
        self._recorder: EventRecorder | None = None
        self._informers: InformerFactory | None = None

    async def __aenter__(self) -> Plane:
        try:
            await self._start_server()
            await self._start_controllers()
            if self.settings.node:
                await self._start_node()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def synced(self) -> None:
        """Wait until the caches of the controllers are complete."""
        if self._informers is not None:
            await self._informers.synced()

    async def failed(self) -> None:
        """Never returns; raises when the store fails. Other parts that fail are started again."""
        assert self._failed is not None
        await self._failed

    async def _start_server(self) -> None:
        settings = self.settings
        await check_settings(settings)
        chosen = select_controllers(settings.controllers, KNOWN) | node_parts(settings)
        if not settings.node:
            chosen -= {SCHEDULER}
        reached = resolve_listen_address(settings.host)
        names = (*settings.names, *reached.names)
        ensure_state_directory(settings.state)
        lock = StateLock(settings.lock)
        lock.acquire()
        self._closing.callback(lock.release)
        if settings.node and settings.python:
            python_choice.remember(settings)
        self._failed = asyncio.get_running_loop().create_future()
        store = Store(settings.database, fsync=settings.fsync, on_failure=self._store_failed)
        self._closing.push_async_callback(store.close)
        credentials = certificate_check.ensure(settings.credentials, names=names)
        self.registry = self._registry(store, chosen)
        self.server = self._server(self.registry, credentials)
        keep = timedelta(days=max(1, settings.history_days))
        samples = SampleCollector(self.registry, SampleStore(settings.samples), keep=keep)
        self.server.mount(ConsoleMount(self.server, settings, samples, hosts=frozenset((*names, *own_names()))))
        self._start_watchdog()
        crd_controller = self._serve_definitions()
        api_services = serve_aggregated(self.server, self.registry, credentials, ADMIN)
        limits = limits_for(open_file_limit(), connections=settings.max_connections)
        front = HttpServer(self.server, limits)
        self.registry.metrics_sources.append(HttpMetrics(front).text)
        context = server_context(credentials)
        port = await self._listen(front, context)
        self._closing.push_async_callback(front.stop)
        self.url = f"https://{_host_port(reached.address, port)}"
        await bootstrap(self.registry, ADMIN, url=self.url, objects=[authentication_config(credentials)])
        if settings.node:
            await ensure_node(self.registry, ADMIN, settings.node_name)
        owned = OwnedObjects(self.registry, owned_objects(settings, chosen), settings.owned_digest)
        if not owned.are_present():
            await owned.ensure(ADMIN)
        self._write_kubeconfig(credentials)  # from here on clients can connect
        node_name = settings.node_name if settings.node else ""
        lock.write(PlaneProcess(os.getpid(), self.url, to_rfc3339(datetime.now(UTC)), node_name))
        self._on_ready(self.url)
        self._start_part("crds", crd_controller.run)
        self._start_part("api-services", api_services.run)
        self._start_part("certificates", partial(renew_certificates, credentials, context, names=names))
        self._start_part("service-addresses", ServiceAddresses(self.registry, ADMIN).run)
        self._start_part("upkeep", Compactor(self.registry).run)
        self._start_part("samples", samples.run)
        self._start_part("owned-objects", partial(owned.run, ADMIN))
        await owned.checked()

    def _serve_definitions(self) -> CrdController:
        """Serve the custom resources of stored CRDs, converted by their webhooks."""
        converter = WebhookConverter(self.registry)
        self.registry.converter = converter
        self._closing.push_async_callback(converter.close)
        return CrdController(self.registry, ADMIN)

    async def _start_controllers(self) -> None:
        """Load the modules of the controllers in a thread, so that the server answers meanwhile, and run them."""
        from torchyard.kube.informer_factory import InformerFactory

        loaded = await load("torchyard.yard.controllers")
        if "pytorchjob" in self.registry.controllers:
            self._serve_controller_log()
        client = self.client("torchyard-controllers")
        self._recorder = EventRecorder(client, "torchyard")
        self._informers = InformerFactory(client)
        for name, part in loaded.controllers(
            client,
            self._informers,
            self.registry,
            self.settings,
            recorder=self._recorder,
            authority=CertificateDir(self.settings.credentials).authority.read_text(),
            sign=self.server.access_control.service_account_tokens.issue_for_secret,
            issue=self._issue_certificate,
        ):
            self._start_part(name, part)

    def _issue_certificate(self, request: bytes, usages: Sequence[str], start: datetime, end: datetime) -> bytes:
        from torchyard.apiserver.access.request_signing import sign_request  # loads cryptography

        return sign_request(CertificateDir(self.settings.credentials).load("ca"), request, usages, start, end)

    def _start_watchdog(self) -> None:
        """Record callbacks that block the event loop."""
        if self.settings.watchdog_threshold <= 0:
            return
        metrics = EventLoopMetrics()
        self.registry.metrics_sources.append(metrics.text)
        watchdog = LoopWatchdog(metrics, self.settings.watchdog_threshold)
        watchdog.start()
        self._closing.callback(watchdog.stop)

    async def _start_node(self) -> None:
        """Run an agent; after a failure a new one, which adopts the pods. Returns when the first one has started."""
        port = urlsplit(self.url).port or 443
        started = asyncio.Event()

        async def run() -> None:
            try:
                node = await load("torchyard.yard.node")
                settings = node.node_settings(self.settings, port)
                self.agent = await node.make_agent(settings, self.client("torchyard-node"), self.registry)
            finally:
                started.set()
            try:
                await self.agent.run()
            finally:
                self.agent = None

        self._closing.push_async_callback(self._stop_pods, self.settings.node_root)  # after the agent released them
        self._start_part("node", run)
        await started.wait()

    async def _stop_pods(self, root: Path) -> None:
        from torchyard.node.shutdown import stop_pods

        if self.stops_pods:
            self.stopped_pods = await stop_pods(root)

    def _serve_controller_log(self) -> None:
        """Serve the controllers' log as the log of the pod that represents them."""
        from torchyard.controllers import operator_pod

        own, controllers_log = ControllerLog(), logging.getLogger("torchyard.controllers")
        controllers_log.addHandler(own)
        self._closing.callback(controllers_log.removeHandler, own)
        self.registry.own_logs[(operator_pod.NAMESPACE, operator_pod.NAME)] = own.read

    def _registry(self, store: Store, chosen: frozenset[str]) -> Registry:
        served = with_expression_checks(with_crd_strategy(served_resources(self.settings, chosen)))
        registry = Registry(store, Catalog(served), controllers=chosen, clock=self._clock)
        registry.allocators[("", "services")] = ServiceAllocator(store)
        registry.template_caches[("", "pods")] = PodTemplateCache(registry)
        return registry

    def _server(self, registry: Registry, credentials: CertificateDir) -> Router:
        lookup = StoreLookup(registry.store)
        accounts = ServiceAccountTokens(credentials.service_account_key.read_bytes(), lookup)
        static = {self._admin_token(): ADMIN}
        if self.settings.token_auth_file is not None:
            static |= read_token_file(self.settings.token_auth_file)
        audiences = (ISSUER,)
        authentication = RequestAuthenticator(
            CertificateAuthenticator(credentials.authority.read_bytes()),
            [StaticTokenAuthenticator(static, audiences), accounts],
            audiences=audiences,
        )
        authorizer = Authorizer(lookup)
        admission = registry.admission = AdmissionController(
            BuiltInAdmission(
                authorizer,
                with_queues="kueue" in registry.controllers,
                plural_of=partial(_plural_of, registry.catalog),
            )
        )
        self._closing.push_async_callback(admission.close)
        access_control = AccessControl(authentication, authorizer, accounts)
        metrics = RequestMetrics(registry.store)
        registry.metrics_sources.append(partial(supervisor_metrics, self.supervisor))
        non_resource = NonResourceHandler(registry, accounts, metrics)
        non_resource.add_check("parts", self._down_parts)
        non_resource.add_report(PARTS_PATH, self._parts)
        return Router(registry, access_control, non_resource, metrics)

    def _admin_token(self) -> str:
        """The admin's bearer token, created once and readable only by its owner."""
        path = self.settings.state / "admin.token"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        token = secrets.token_urlsafe(32)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
        return token

    async def _listen(self, front: HttpServer, context: Any) -> int:
        settings = self.settings
        try:
            return await front.start(settings.host, settings.port, context)
        except OSError as error:
            address = _host_port(settings.host, settings.port)
            reason, hint = _LISTEN_ERRORS.get(
                error.errno or 0, (error.strerror or str(error), "name another --host or --port")
            )
            raise YardError(f"cannot listen on {address}: {reason}", hint=hint, code="PortTaken") from error

    def client(self, manager: str) -> Client:
        """A client of this plane with admin rights that uses no socket."""

        @cache
        def headers(content_type: str, accept: str) -> Mapping[str, str]:
            return CIMultiDictProxy(
                CIMultiDict({"User-Agent": manager, "Content-Type": content_type, "Accept": accept})
            )

        async def handle(
            method: str, path: str, body: bytes = b"", content_type: str = "", accept: str = JSON
        ) -> HandlerResponse:
            bare, _, query = path.partition("?")
            request_headers = headers(content_type, accept)
            request = Request(method, bare, Query(query), request_headers, body, ADMIN, in_process=True)
            response = await self.server.handle(request)
            return HandlerResponse(response.status, response.body, response.headers, response.events)

        return Client(LocalTransport(handle), manager=manager)

    def _start_part(self, name: str, part: Part) -> None:
        task = asyncio.get_running_loop().create_task(self.supervisor.run(name, part), name=name)

        async def stop() -> None:
            task.cancel()
            await asyncio.wait([task])

        self._closing.push_async_callback(stop)

    def _part_failed(self, failure: PartFailure) -> None:
        if self._recorder is not None:
            message = messages.part_failed(failure.part, describe(failure.error), failure.delay)
            self._recorder.event(_PLANE_OBJECT, "Warning", messages.PART_FAILED, message)

    def _store_failed(self, error: Exception) -> None:
        """End the process: what is in memory no longer matches the disk, which is right."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(
                YardError(f"the store failed: {describe(error)}", hint="start the plane again", code="BadState")
            )

    def _parts(self) -> bytes:
        """The parts and their states, for `yard status`."""
        parts = [
            asdict(PlanePart(part.part, part.state, to_rfc3339(part.since), part.failures, part.last_error))
            for part in self.supervisor.statuses()
        ]
        return orjson.dumps({"parts": parts})

    def _down_parts(self) -> str:
        """A health check: the parts that wait for their restart."""
        return "; ".join(f"{part}: {error}" for part, error in sorted(self.supervisor.down().items()))

    def _write_kubeconfig(self, credentials: CertificateDir) -> None:
        from torchyard.kube import kubeconfig_entry

        authority = credentials.authority.read_bytes()
        config = kubeconfig_entry.build_config(
            self.settings.name, server=self.url, authority=authority, token=self._admin_token()
        )
        kubeconfig_entry.write(self.settings.kubeconfig, config)


def _plural_of(catalog: Catalog, api_version: str, kind: str) -> str | None:
    group, _, version = api_version.rpartition("/")
    resource = catalog.kind(group, version, kind)
    return resource.plural if resource is not None else None


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
