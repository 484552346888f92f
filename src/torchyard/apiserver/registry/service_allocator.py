"""What only the server can give a Service: its cluster address and node ports.

Which are taken follows the stored services themselves, so there is no second book that could disagree.
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

if TYPE_CHECKING:
    from torchyard.apiserver.registry.registry import Registry


NODE_PORTS = range(30000, 32768)


class ServiceAllocator:
    """Addresses and ports given out, by service."""

    before_validation: ClassVar[bool] = True

    def __init__(self, store: Store, cidr: str = SERVICE_CIDR) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        self._owner_of_address: dict[str, str] = {}
        self._owner_of_port: dict[int, str] = {}
        store.listen("/services/", self._follow)

    def _follow(self, event: StoreEvent) -> None:
        if event.previous is not None:
            self._note(event.previous.object(), given=False)
        if event.change != "DELETED":
            self._note(event.record.object(), given=True)

    def _note(self, service: Object, *, given: bool) -> None:
        uid, spec = service["metadata"]["uid"], service.get("spec") or {}
        addresses = [one for one in spec.get("clusterIPs") or () if one != "None"]
        ports = [port for port in (*_node_ports_of(spec), spec.get("healthCheckNodePort")) if port]
        if given:
            self._owner_of_address.update(dict.fromkeys(addresses, uid))
            self._owner_of_port.update(dict.fromkeys(ports, uid))
            return
        for address in addresses:
            self._owner_of_address.pop(address, None)
        for port in ports:
            self._owner_of_port.pop(port, None)

    @property
    def first(self) -> str:
        """The address of the `kubernetes` service."""
        return str(self._range[1])

    def allocate(self, registry: Registry, new: Object, old: Object | None) -> None:
        """Fill in what a service asks for; 422 when it asks for what another has, or for what there is not."""
        spec = new["spec"]
        if not needs_cluster_ip(new):
            return
        if refused := family_errors(new):
            raise self._refusal(new, *refused)
        if old is None or not needs_cluster_ip(old):
            self._address(new, spec)
        if needs_node_ports(new):
            self._node_ports(new, old)
        if needs_health_check_port(new) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = self._free_port(set(self._owner_of_port) | set(_node_ports_of(spec)))

    def _refusal(self, service: Object, *found: field_errors.FieldError) -> errors.StatusError:
        return errors.invalid("Service", "", service["metadata"].get("name", ""), list(found))

    def _address(self, service: Object, spec: Object) -> None:
        address = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0]
        if address == "None":
            spec["clusterIP"], spec["clusterIPs"] = address, spec.get("clusterIPs") or [address]
            return
        if address:
            self._check(service, address)
        else:
            address = next((one for one in self._candidates() if one not in self._owner_of_address), "")
            if not address:
                raise errors.internal("failed to allocate a serviceIP: range is full")
        spec["clusterIP"], spec["clusterIPs"] = address, [address]

    def _check(self, service: Object, address: str) -> None:
        why = ""
        if ipaddress.ip_address(address) not in self._range:
            why = f"failed to allocate IP {address}: the provided network does not match the current range"
        elif self._owner_of_address.get(address, service["metadata"].get("uid")) != service["metadata"].get("uid"):
            why = f"failed to allocate IP {address}: provided IP is already allocated"
        if why:
            raise self._refusal(service, field_errors.invalid("spec.clusterIPs", [address], why))

    def _candidates(self) -> Iterator[str]:
        """Addresses at random first, as upstream, so that a deleted service's is not taken at once; then in order."""
        size = self._range.num_addresses
        for _ in range(64):
            yield str(self._range[random.randrange(size // 8, size - 1)])
        for offset in range(2, size - 1):
            yield str(self._range[offset])

    def _node_ports(self, service: Object, old: Object | None) -> None:
        """One number for each port of the service, whatever its protocols, as upstream saves them."""
        ports, uid = service["spec"].get("ports") or [], service["metadata"].get("uid")
        taken = {port for port, owner in self._owner_of_port.items() if owner != uid}
        mine = (
            {one.get("port"): one["nodePort"] for one in reversed(ports) if one.get("nodePort")} if old is None else {}
        )
        for index, port in enumerate(ports):
            wanted = port.get("nodePort") or mine.get(port.get("port"))
            why = ""
            if wanted and wanted not in NODE_PORTS:
                why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
            elif wanted in taken:
                why = "provided port is already allocated"
            if why:
                raise self._refusal(service, field_errors.invalid(f"spec.ports[{index}].nodePort", wanted, why))
            port["nodePort"] = wanted or self._free_port(taken | set(_node_ports_of(service["spec"])))
            if old is None:
                mine.setdefault(port.get("port"), port["nodePort"])

    def _free_port(self, taken: set[int]) -> int:
        free = [one for one in NODE_PORTS if one not in taken]
        if not free:
            raise errors.internal("failed to allocate a nodePort: range is full")
        return random.choice(free)


def _node_ports_of(spec: Object) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
