"""The address ranges of the cluster's network, and which address each pod has."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from torchyard.api import checks
from torchyard.api.errors import YardError
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.service.cidr import SERVICE_CIDR
from torchyard.node.shim import records

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ClusterNetworkConfig, PodNetwork


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    pods: str = "10.244.0.0/24"
    services: str = SERVICE_CIDR
    domain: str = "cluster.local"
    bridge: str = "yard0"
    relay: int = 15001  # the gateway's port for connections that leave the cluster

    @property
    def gateway(self) -> str:
        return str(ipaddress.ip_network(self.pods)[1])

    @property
    def dns(self) -> str:
        """The address of the cluster's DNS server, where kubeadm puts it."""
        return str(ipaddress.ip_network(self.services)[10])

    @property
    def api(self) -> str:
        return str(ipaddress.ip_network(self.services)[1])

    def for_namespace_holder(self) -> ClusterNetworkConfig:
        pods, services = ipaddress.ip_network(self.pods), ipaddress.ip_network(self.services)
        return {
            "bridge": self.bridge,
            "gateway": self.gateway,
            "prefix": pods.prefixlen,
            "services": str(services.network_address),
            "services_prefix": services.prefixlen,
            "pods": self.pods,
            "relay": self.relay,
        }

    def for_pod(self, address: str) -> PodNetwork:
        prefix = ipaddress.ip_network(self.pods).prefixlen
        return {"address": address, "prefix": prefix, "gateway": self.gateway}


class NodeAddresses(NamedTuple):
    """Addresses of the machine. `api` is the API server's."""

    host: str
    listening: tuple[str, ...]  # on which node ports and host ports are open
    api: tuple[str, int] | None


def listening_addresses(ranges: str, host: str) -> tuple[str, ...]:
    """Where node ports and host ports are open: on loopback, and on the IPv4 addresses in these ranges.

    `primary` is the node's own address, as for kube-proxy's --nodeport-addresses.
    """
    parts = [part.strip() for part in ranges.split(",") if part.strip()]
    try:
        networks = [ipaddress.ip_network(f"{host}/32" if part == "primary" else part, strict=False) for part in parts]
    except ValueError as error:
        raise YardError(
            f"--node-port-addresses: {error}", hint="give ranges such as 192.168.0.0/16, or primary", code="BadOption"
        ) from None
    own = [host, *(each.address for interface in psutil.net_if_addrs().values() for each in interface)]
    addresses = [each for each in own if ":" not in each and checks.parse_ip(each) is not None]
    chosen = [each for each in addresses if any(ipaddress.ip_address(each) in network for network in networks)]
    return tuple(dict.fromkeys(("127.0.0.1", *chosen)))


class PodIPAllocator:
    """Allocates pod addresses. The records of the pods say which are in use; nothing else is stored."""

    def __init__(self, network: NetworkSettings, pod_dirs: Iterable[Path]) -> None:
        hosts = list(ipaddress.ip_network(network.pods).hosts())
        self._all = [str(address) for address in hosts[1:]]
        self._used: set[str] = set()
        self._next = 0
        for pod_dir in pod_dirs:
            record = records.read_pod(str(pod_dir))
            if record and not record.get("released") and (pod_network := record.get("network")):
                self._used.add(pod_network["address"])

    def allocate(self) -> str:
        """Round robin, so that an address is not reused at once."""
        for _ in self._all:
            address = self._all[self._next]
            self._next = (self._next + 1) % len(self._all)
            if address not in self._used:
                self._used.add(address)
                return address
        raise YardError(messages.NO_FREE_ADDRESS, hint=messages.NO_FREE_ADDRESS_HINT)

    def release(self, address: str) -> None:
        self._used.discard(address)
