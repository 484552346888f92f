"""Address ranges of the cluster's network, and which address belongs to which pod."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.service.cidr import SERVICE_CIDR


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
        """The address of the cluster's resolver, at the place where kubeadm puts it."""
        return str(ipaddress.ip_network(self.services)[10])

    @property
    def api(self) -> str:
        return str(ipaddress.ip_network(self.services)[1])

    def for_namespace_holder(self) -> dict[str, Any]:
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

    def for_pod(self, address: str) -> dict[str, Any]:
        prefix = ipaddress.ip_network(self.pods).prefixlen
        return {"address": address, "prefix": prefix, "gateway": self.gateway}


class PodIPAllocator:
    """Hands out pod addresses. What is in use is read from the pods' directories: nothing else need be remembered."""

    def __init__(self, ranges: NetworkSettings, homes: Iterable[Path]) -> None:
        network = ipaddress.ip_network(ranges.pods)
        self._all = [str(address) for address in list(network.hosts())[1:]]
        self._used: set[str] = set()
        self._next = 0
        for home in homes:
            path = home / "pod.json"
            plan = json.loads(path.read_text()) if path.exists() else {}
            if plan.get("network") and not plan.get("released"):
                self._used.add(plan["network"]["address"])

    def take(self) -> str:
        """Round and round, so that an address rests before it is used again."""
        for _ in self._all:
            address = self._all[self._next]
            self._next = (self._next + 1) % len(self._all)
            if address not in self._used:
                self._used.add(address)
                return address
        raise YardError("no free pod address is left", hint="delete pods, or give the node a larger pod range")

    def give_back(self, address: str) -> None:
        self._used.discard(address)
