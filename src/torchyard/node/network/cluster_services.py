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
from torchyard.api.service import messages
from torchyard.kube.informer import Informer, key_of
from torchyard.node.events import NodeEventRecorder
from torchyard.node.network import dns, names
from torchyard.node.network.addresses import NetworkSettings, NodeAddresses
from torchyard.node.network.dialer import ClusterDialer
from torchyard.node.network.proxy import ServiceProxy
from torchyard.node.network.service_ports import ServicePort, host_ports, service_ports
from torchyard.node.shim.client import ClusterNetwork

log = logging.getLogger(__name__)

# Until the next attempt to listen on a port; it doubles with every failure.
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 60.0
_MAX_REPORTED = 4096
# A call of `changed` writes files of many pods; the pause after it is so many times as long.
_PAUSE_FACTOR = 5.0


class ClusterServices:
    """`records` are the current DNS records.

    `changed` is called with the namespaces whose names have changed.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        network: ClusterNetwork | None,
        services: Informer,
        slices: Informer,
        *,
        recorder: NodeEventRecorder,
        addresses: NodeAddresses,
        changed: Callable[[set[str]], None],
    ) -> None:
        self._settings, self._network = settings, network
        self._services, self._slices, self._changed = services, slices, changed
        self._recorder, self._node_addresses, self._host = recorder, addresses.listening, addresses.host
        # Where pods reach node ports and host ports, in their own network.
        self._node_for_pods = "" if network is None or addresses.host.startswith("127.") else addresses.host
        self._pods: dict[str, Object] = {}  # with host ports, by owner of the port
        self._reported: set[tuple[str, str]] = set()  # events, by uid and message
        self.records: names.DnsRecords = {}
        self._records_in: dict[str, names.DnsRecords] = {}  # by namespace
        self._records_of: dict[str, names.DnsRecords] = {}  # by service, as `namespace/name`
        self._aliases: dict[str, str] = {}  # of Services of type ExternalName
        self._changed_namespaces: set[str] = set()
        self._next_report = 0.0  # not before this time of the event loop
        self._dirty: OrderedDict[str, None] = OrderedDict()  # services whose ports may have changed
        self._has_dirty = asyncio.Event()
        self._proxy = ServiceProxy(
            network,
            ClusterDialer(network, settings, host_ip=addresses.host, api=addresses.api),
            external={settings.api: addresses.api} if addresses.api else {},
            failed=self._listen_failed,
            freed=self._mark_dirty,
        )
        self._retries: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # of services, with the interval
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
        self._aliases.pop(f"{name}.{namespace}.svc.{self._settings.domain}", None)
        if service:
            self._aliases.update(names.service_alias(service, domain=self._settings.domain))
        before = self._records_of.pop(key, {})
        if records:
            self._records_of[key] = records
        if records != before:
            self._replace(namespace, before, records)
        self._mark_dirty(key)

    def _mark_dirty(self, key: str) -> None:
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
        """Serve DNS and the Services' addresses inside the pod network, and ports of the machine."""
        transport = await self._serve_dns() if self._network is not None else None
        self._dirty.update(dict.fromkeys("/".join(key_of(service)) for service in self._services.all()))
        self._dirty.update(dict.fromkeys(self._pods))
        self._has_dirty.set()  # a start after a failure has to open every port again
        try:
            while True:
                await self._has_dirty.wait()
                self._has_dirty.clear()
                await self._update_ports()
        finally:
            if transport is not None:
                transport.close()
            for _, timer in self._retries.values():
                timer.cancel()
            self._retries.clear()
            await self._proxy.close()

    async def _update_ports(self) -> None:
        while self._dirty:
            key, _ = self._dirty.popitem(last=False)
            try:
                is_served = await self._proxy.update(key, self._ports_of(key))
            except YardError as error:
                log.warning("service proxy update failed: service=%s error=%r", key, str(error))
                is_served = False
            seconds, timer = self._retries.pop(key, (0.0, None))
            if timer is not None:
                timer.cancel()
            if not is_served:
                seconds = min(seconds * 2, _MAX_RETRY_SECONDS) or _MIN_RETRY_SECONDS
                loop = asyncio.get_running_loop()
                self._retries[key] = seconds, loop.call_later(seconds, self._mark_dirty, key)

    def machine_address(self, destination: tuple[str, int]) -> tuple[str, int]:
        """Where a pod's connection to the machine goes: the node's ports are open to pods at its address."""
        host, port = destination
        is_own = host == self._host and host not in self._node_addresses
        return ("127.0.0.1", port) if is_own and self._proxy.listens("127.0.0.1", port) else destination

    def _ports_of(self, key: str) -> list[ServicePort]:
        if key in self._pods:
            return host_ports(self._pods[key], node_addresses=self._node_addresses, node=self._node_for_pods)
        namespace, _, name = key.partition("/")
        service = self._services.get(namespace, name)
        if service is None:
            return []
        slices = self._slices.by("service", key)
        ports = service_ports(service, slices, node_addresses=self._node_addresses, node=self._node_for_pods)
        if self._network is None and ports and ports[0].key.address not in (self._settings.api, self._settings.dns):
            self._report(service, messages.REASON_CLUSTER_IP_NOT_SERVED, messages.CLUSTER_IP_NOT_SERVED)
        return ports

    def pod_changed(self, pod: Object, *, is_deleted: bool) -> None:
        """Listen on the host ports of a pod, or no longer."""
        key = "pod:" + "/".join(key_of(pod))
        if is_deleted or not host_ports(pod, node_addresses=self._node_addresses):
            if self._pods.pop(key, None) is None:
                return
        elif self._pods.get(key, {}).get("status") == pod.get("status"):
            return
        else:
            self._pods[key] = pod
        self._mark_dirty(key)

    def _listen_failed(self, port: ServicePort, reason: str) -> None:
        key = port.key
        obj = self._pods.get(port.owner) or self._services.get(*port.owner.split("/", 1))
        if obj is None:
            return
        if key.on_machine:
            text = messages.port_not_served(key.protocol, key.address, key.port, reason)
            self._report(obj, messages.REASON_PORT_NOT_SERVED, text)
        else:
            text = messages.address_not_served(key.protocol, key.address, key.port, reason)
            self._report(obj, messages.REASON_CLUSTER_IP_NOT_SERVED, text)

    def _report(self, obj: Object, reason: str, text: str) -> None:
        """Once for each object and message, though the port is tried again and again."""
        uid = obj["metadata"]["uid"]
        if (uid, text) not in self._reported:
            if len(self._reported) >= _MAX_REPORTED:
                self._reported.clear()
            self._reported.add((uid, text))
            self._recorder.warn(obj, reason, text)

    async def _serve_dns(self) -> asyncio.BaseTransport:
        assert self._network is not None
        socket = await self._network.listen("udp", self._settings.dns, 53)
        server = dns.DnsServer(
            lambda: self.records,
            domain=self._settings.domain,
            upstream=dns.machine_servers(),
            aliases=lambda: self._aliases,
        )
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: server, sock=socket)
        return transport
