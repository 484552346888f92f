"""Keeps the cluster's names and service addresses in step with its Services and EndpointSlices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from torchyard.api.errors import YardError
from torchyard.kube.informer import Informer
from torchyard.node.context import NodeContext
from torchyard.node.network import dns, names
from torchyard.node.network.proxy import ServiceProxy, doors
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
        self._table: names.Table = {}
        self._dirty = asyncio.Event()
        self._wired = context.machine.network
        ranges = context.settings.ranges
        outside = {ranges.api: context.settings.api_address} if context.settings.api_address else {}
        self._proxy = ServiceProxy(network, outside=outside)
        context.names = lambda: self._table
        context.services = lambda namespace: services.by("namespace", namespace)
        for informer in (services, slices):
            informer.on_change(lambda *_: self._touch())

    def _touch(self) -> None:
        """The names at once, since a pod may start the next moment; sockets in the background."""
        domain = self._context.settings.ranges.domain
        table = names.table(self._services.all(), self._slices.all(), domain=domain)
        if table != self._table:
            self._table = table
            self._changed()
        self._dirty.set()

    async def run(self) -> None:
        if not self._wired:
            return
        transport = await self._serve_names()
        try:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                try:
                    await self._proxy.update(doors(self._services.all(), self._slices.all()))
                except YardError as failed:
                    log.warning("service addresses are not up to date: %s", failed)
                    await asyncio.sleep(1)
                    self._dirty.set()
        finally:
            transport.close()
            await self._proxy.close()

    async def _serve_names(self) -> asyncio.BaseTransport:
        ranges = self._context.settings.ranges
        socket = await self._network.listen("udp", ranges.dns, 53)
        resolver = dns.Resolver(lambda: self._table, domain=ranges.domain, upstream=dns.machine_servers())
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: resolver, sock=socket)
        return transport
