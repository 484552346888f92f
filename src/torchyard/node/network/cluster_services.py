"""Keeps the cluster's DNS names and service addresses in step with its Services and EndpointSlices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from torchyard.api.errors import YardError
from torchyard.kube.informer import Informer
from torchyard.node.context import NodeContext
from torchyard.node.network import dns, names
from torchyard.node.network.proxy import ServiceProxy, service_ports
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)


class ClusterServices:
    def __init__(
        self,
        context: NodeContext,
        network: ClusterNetwork,
        services: Informer,
        slices: Informer,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._context, self._network = context, network
        self._services, self._slices, self._changed = services, slices, changed
        self._records: names.DnsRecords = {}
        self._dirty = asyncio.Event()
        settings = context.settings
        external = {settings.network.api: settings.api_address} if settings.api_address else {}
        self._proxy = ServiceProxy(network, external=external)
        context.names = lambda: self._records
        context.services = lambda namespace: services.by("namespace", namespace)
        for informer in (services, slices):
            informer.on_change(lambda *_: self._update())

    def _update(self) -> None:
        """The names at once, since a pod may start the next moment; sockets in the background."""
        domain = self._context.settings.network.domain
        records = names.dns_records(self._services.all(), self._slices.all(), domain=domain)
        if records != self._records:
            self._records = records
            self._changed()
        self._dirty.set()

    async def run(self) -> None:
        if not self._context.machine.network:
            return
        transport = await self._serve_dns()
        try:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                try:
                    await self._proxy.update(service_ports(self._services.all(), self._slices.all()))
                except YardError as error:
                    log.warning("service proxy update failed: error=%r", str(error))
                    await asyncio.sleep(1)
                    self._dirty.set()
        finally:
            transport.close()
            await self._proxy.close()

    async def _serve_dns(self) -> asyncio.BaseTransport:
        network = self._context.settings.network
        socket = await self._network.listen("udp", network.dns, 53)
        server = dns.DnsServer(lambda: self._records, domain=network.domain, upstream=dns.machine_servers())
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: server, sock=socket)
        return transport
