"""Keeps the cluster's DNS names and service addresses in step with its Services and EndpointSlices.

A change costs what its own service has: names and ports are kept by service.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.kube.informer import Informer, key_of
from torchyard.node.network import dns, names
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.network.proxy import ServicePort, ServiceProxy, service_ports
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
# A call of `changed` writes files of many pods; the pause after it is so many times as long.
_PAUSE_FACTOR = 5.0


class ClusterServices:
    """`records` are the current DNS records; `api_address` is the API server's, outside the pod network.

    `changed` is called with the namespaces whose names have changed.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        network: ClusterNetwork,
        services: Informer,
        slices: Informer,
        *,
        api_address: tuple[str, int] | None,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._settings, self._network = settings, network
        self._services, self._slices, self._changed = services, slices, changed
        self.records: names.DnsRecords = {}
        self._records_in: dict[str, names.DnsRecords] = {}  # by namespace
        self._records_of: dict[str, names.DnsRecords] = {}  # by service, as `namespace/name`
        self._changed_namespaces: set[str] = set()
        self._next_report = 0.0  # not before this time of the event loop
        self._dirty: OrderedDict[str, None] = OrderedDict()  # services whose ports may have changed
        self._has_dirty = asyncio.Event()
        self._proxy = ServiceProxy(network, external={settings.api: api_address} if api_address else {})
        slices.add_index("service", names.service_of)
        services.on_change(lambda _change, service, _before: self._update("/".join(key_of(service))))
        slices.on_change(self._slice_changed)

    def records_in(self, namespace: str) -> Mapping[str, list[str]]:
        """The DNS records of the services of a namespace."""
        return self._records_in.get(namespace, {})

    def _slice_changed(self, _change: str, endpoint_slice: Object, before: Object | None) -> None:
        states = [state for state in (endpoint_slice, before) if state is not None]
        for service in {service for state in states for service in names.service_of(state)}:
            self._update(service)

    def _update(self, key: str) -> None:
        """The names at once, since a pod may start the next moment; sockets in the background."""
        namespace, _, name = key.partition("/")
        service = self._services.get(namespace, name)
        slices = self._slices.by("service", key)
        records = names.service_records(service, slices, domain=self._settings.domain) if service else {}
        before = self._records_of.pop(key, {})
        if records:
            self._records_of[key] = records
        if records != before:
            self._replace(namespace, before, records)
        self._dirty[key] = None
        self._has_dirty.set()

    def _replace(self, namespace: str, before: names.DnsRecords, records: names.DnsRecords) -> None:
        own = self._records_in.setdefault(namespace, {})
        for table in (self.records, own):
            for name in before:
                table.pop(name, None)
            table.update(records)
        if not own:
            del self._records_in[namespace]
        if not self._changed_namespaces:
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._next_report, loop.time()), self._report_names)
        self._changed_namespaces.add(namespace)

    def _report_names(self) -> None:
        """Report the namespaces whose names have changed: at once, or a while after a report that took long."""
        loop = asyncio.get_running_loop()
        namespaces, self._changed_namespaces = self._changed_namespaces, set()
        started = loop.time()
        try:
            self._changed(namespaces)
        finally:
            now = loop.time()
            self._next_report = now + (now - started) * _PAUSE_FACTOR

    async def run(self) -> None:
        """Serve DNS and the Services' addresses inside the pod network."""
        transport = await self._serve_dns()
        self._dirty.update(dict.fromkeys("/".join(key_of(service)) for service in self._services.all()))
        self._has_dirty.set()  # a start after a failure has to open every port again
        try:
            while True:
                await self._has_dirty.wait()
                self._has_dirty.clear()
                await self._update_ports()
        finally:
            transport.close()
            await self._proxy.close()

    async def _update_ports(self) -> None:
        failed: list[str] = []
        while self._dirty:
            key, _ = self._dirty.popitem(last=False)
            try:
                is_served = await self._proxy.update(key, self._ports_of(key))
            except YardError as error:
                log.warning("service proxy update failed: service=%s error=%r", key, str(error))
                is_served = False
            if not is_served:
                failed.append(key)
        if failed:
            await asyncio.sleep(_RETRY_SECONDS)
            self._dirty.update(dict.fromkeys(failed))
            self._has_dirty.set()

    def _ports_of(self, key: str) -> list[ServicePort]:
        namespace, _, name = key.partition("/")
        service = self._services.get(namespace, name)
        return service_ports(service, self._slices.by("service", key)) if service else []

    async def _serve_dns(self) -> asyncio.BaseTransport:
        socket = await self._network.listen("udp", self._settings.dns, 53)
        server = dns.DnsServer(lambda: self.records, domain=self._settings.domain, upstream=dns.machine_servers())
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: server, sock=socket)
        return transport
