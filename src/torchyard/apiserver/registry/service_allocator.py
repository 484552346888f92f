"""Allocates cluster IPs and node ports to Services.

The allocator derives what is taken from the stored Services, so there is no second record that could disagree.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from torchyard.api import errors, field_errors
from torchyard.api.objects import Object
from torchyard.api.service.allocation import (
    family_errors,
    needs_cluster_ip,
    needs_health_check_port,
    needs_node_ports,
)
from torchyard.api.service.cidr import SERVICE_CIDR
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.core.service.service_cidr import is_usable, networks_of

if TYPE_CHECKING:
    from torchyard.apiserver.registry.registry import Registry


NODE_PORTS = range(30000, 32768)
SERVICE_CIDRS, IP_ADDRESSES = "/servicecidrs.networking.k8s.io/", "/ipaddresses.networking.k8s.io/"
DEFAULT_CIDR = "kubernetes"  # the ServiceCIDR of the server's own range
# The label of IPAddresses that record the address of a Service; others reserve their address.
MANAGED_BY, MANAGER = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"


class ServiceAllocator:
    """Allocated addresses and ports, by the UID of their Service."""

    before_validation: ClassVar[bool] = True

    def __init__(self, store: Store, cidr: str = SERVICE_CIDR) -> None:
        self._network = ipaddress.IPv4Network(cidr)
        self._networks: dict[str, list[ipaddress.IPv4Network]] = {DEFAULT_CIDR: [self._network]}
        self._reserved: set[str] = set()  # addresses of IPAddresses that others made
        self._ip_owners: dict[str, str] = {}
        self._port_owners: dict[int, str] = {}
        store.listen("/services/", self._follow)
        store.listen(SERVICE_CIDRS, self._follow_cidr)
        store.listen(IP_ADDRESSES, self._follow_address)

    def _follow(self, event: StoreEvent) -> None:
        if event.previous is not None:
            self._track(event.previous.object(), allocated=False)
        if event.change != "DELETED":
            self._track(event.record.object(), allocated=True)

    def _follow_cidr(self, event: StoreEvent) -> None:
        """Use the ranges that are ready and not being deleted. The server's own is used before it is ready, too."""
        cidr = event.record.object()
        name = cidr["metadata"]["name"]
        is_own = name == DEFAULT_CIDR and not cidr["metadata"].get("deletionTimestamp")
        if event.change != "DELETED" and (is_own or is_usable(cidr)):
            self._networks[name] = [network for network in networks_of(cidr) if network.version == 4]
        elif event.change == "DELETED" and name == DEFAULT_CIDR:
            self._networks[name] = [self._network]
        else:
            self._networks.pop(name, None)

    def _follow_address(self, event: StoreEvent) -> None:
        metadata = event.record.object()["metadata"]
        is_reservation = (metadata.get("labels") or {}).get(MANAGED_BY) != MANAGER
        if event.change != "DELETED" and is_reservation:
            self._reserved.add(metadata["name"])
        else:
            self._reserved.discard(metadata["name"])

    def _track(self, service: Object, *, allocated: bool) -> None:
        uid, spec = service["metadata"]["uid"], service.get("spec") or {}
        addresses = cluster_ips(service)
        ports = [port for port in (*_node_ports_of(spec), spec.get("healthCheckNodePort")) if port]
        if allocated:
            self._ip_owners.update(dict.fromkeys(addresses, uid))
            self._port_owners.update(dict.fromkeys(ports, uid))
            return
        for address in addresses:
            self._ip_owners.pop(address, None)
        for port in ports:
            self._port_owners.pop(port, None)

    @property
    def first_ip(self) -> str:
        """The cluster IP of the `kubernetes` Service."""
        return str(self._network[1])

    def allocate(self, registry: Registry, new: Object, old: Object | None) -> None:
        """Set the cluster IP and node ports that a Service needs; 422 if it requests taken or invalid ones."""
        spec = new["spec"]
        if not needs_cluster_ip(new):
            return
        if errs := family_errors(new):
            raise _invalid(new, *errs)
        if old is None or not needs_cluster_ip(old):
            self._allocate_ip(new, spec)
        if needs_node_ports(new):
            self._allocate_node_ports(new, old)
        if needs_health_check_port(new) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = self._free_port(set(self._port_owners) | set(_node_ports_of(spec)))

    def _allocate_ip(self, service: Object, spec: Object) -> None:
        address = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0]
        if address == "None":
            spec["clusterIP"], spec["clusterIPs"] = address, spec.get("clusterIPs") or [address]
            return
        if address:
            self._check_ip(service, address)
        else:
            owners, reserved = self._ip_owners, self._reserved
            free = (each for each in self._candidates() if each not in owners and each not in reserved)
            address = next(free, "")
            if not address:
                raise errors.internal("failed to allocate a serviceIP: range is full")
        spec["clusterIP"], spec["clusterIPs"] = address, [address]

    def _check_ip(self, service: Object, address: str) -> None:
        reason = ""
        if not self._contains(address):
            reason = f"failed to allocate IP {address}: the provided network does not match the current range"
        elif address in self._reserved or self._is_taken(address, service["metadata"].get("uid")):
            reason = f"failed to allocate IP {address}: provided IP is already allocated"
        if reason:
            raise _invalid(service, field_errors.invalid("spec.clusterIPs", [address], reason))

    def _is_taken(self, address: str, uid: str) -> bool:
        return self._ip_owners.get(address, uid) != uid

    def _contains(self, address: str) -> bool:
        """Whether a range has the address; the first and the last of a range are not for Services."""
        parsed = ipaddress.ip_address(address)
        return any(
            parsed in network and parsed not in (network.network_address, network.broadcast_address)
            for networks in self._networks.values()
            for network in networks
        )

    def _candidates(self) -> Iterator[str]:
        """Random addresses first, as upstream, so that those of deleted Services are not reused soon; then in order."""
        for network in [network for networks in self._networks.values() for network in networks]:
            first = 2 if network == self._network else 1  # the `kubernetes` Service has the first of the server's own
            last = network.num_addresses - 1
            start = max(network.num_addresses // 8, first)
            if start < last:
                for _ in range(64):
                    yield str(network[random.randrange(start, last)])
            for offset in range(first, last):
                yield str(network[offset])

    def _allocate_node_ports(self, service: Object, old: Object | None) -> None:
        """As upstream: ports with the same number and different protocols share a node port."""
        ports, uid = service["spec"].get("ports") or [], service["metadata"].get("uid")
        taken = {port for port, owner in self._port_owners.items() if owner != uid}
        by_port = (
            {port.get("port"): port["nodePort"] for port in reversed(ports) if port.get("nodePort")}
            if old is None
            else {}
        )
        for index, port in enumerate(ports):
            requested = port.get("nodePort") or by_port.get(port.get("port"))
            reason = ""
            if requested and requested not in NODE_PORTS:
                reason = "provided port is not in the valid range. The range of valid ports is 30000-32767"
            elif requested in taken:
                reason = "provided port is already allocated"
            if reason:
                raise _invalid(service, field_errors.invalid(f"spec.ports[{index}].nodePort", requested, reason))
            port["nodePort"] = requested or self._free_port(taken | set(_node_ports_of(service["spec"])))
            if old is None:
                by_port.setdefault(port.get("port"), port["nodePort"])

    def _free_port(self, taken: set[int]) -> int:
        free = [port for port in NODE_PORTS if port not in taken]
        if not free:
            raise errors.internal("failed to allocate a nodePort: range is full")
        return random.choice(free)


def _invalid(service: Object, *errs: field_errors.FieldError) -> errors.StatusError:
    return errors.invalid("Service", "", service["metadata"].get("name", ""), list(errs))


def cluster_ips(service: Object) -> list[str]:
    """The addresses of a Service."""
    return [address for address in (service.get("spec") or {}).get("clusterIPs") or () if address != "None"]


def _node_ports_of(spec: Object) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
