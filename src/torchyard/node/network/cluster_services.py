"""Keeps the cluster's DNS names and service addresses in step with its Services and EndpointSlices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from torchyard.api.errors import YardError
from torchyard.kube.informer import Informer
from torchyard.node.network import dns, names
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.network.proxy import ServiceProxy, service_ports
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)


class ClusterServices:
    """`records` are the current DNS records; `api_address` is the API server's, outside the pod network."""

    def __init__(
        self,
        settings: NetworkSettings,
        network: ClusterNetwork,
        services: Informer,
        slices: Informer,
        *,
        api_address: tuple[str, int] | None,
        changed: Callable[[], None],
    ) -> None:
        self._settings, self._network = settings, network
        self._services, self._slices, self._changed = services, slices, changed
        self.records: names.DnsRecords = {}
        self._dirty = asyncio.Event()
        self._proxy = ServiceProxy(network, external={settings.api: api_address} if api_address else {})
        for informer in (services, slices):
            informer.on_change(lambda *_: self._update())

    def _update(self) -> None:
        """The names at once, since a pod may start the next moment; sockets in the background."""
        records = names.dns_records(self._services.all(), self._slices.all(), domain=self._settings.domain)
        if records != self.records:
            self.records = records
            self._changed()
        self._dirty.set()

    async def run(self) -> None:
        """Serve DNS and the Services' addresses inside the pod network."""
        transport = await self._serve_dns()
        self._dirty.set()  # a start after a failure has to open every port again
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
        socket = await self._network.listen("udp", self._settings.dns, 53)
        server = dns.DnsServer(lambda: self.records, domain=self._settings.domain, upstream=dns.machine_servers())
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: server, sock=socket)
        return transport
