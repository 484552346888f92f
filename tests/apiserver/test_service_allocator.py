"""Cluster IPs from ServiceCIDRs of every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.registry.service_allocator import IP_ADDRESSES, SERVICE_CIDRS, ServiceAllocator
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import Change, StoreEvent

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class Events:
    """Passes events to the listeners of a store."""

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[StoreEvent], None]] = {}
        self._revision = 0

    def listen(self, prefix: str, listener: Callable[[StoreEvent], None]) -> None:
        self._listeners[prefix] = listener

    def send(self, prefix: str, obj: Object, change: Change = "ADDED") -> None:
        self._revision += 1
        record = Record(f"{prefix}/{obj['metadata']['name']}", self._revision, orjson.dumps(obj))
        self._listeners[prefix](StoreEvent(change, record, None))

    def cidr(self, name: str, *ranges: str, change: Change = "ADDED") -> None:
        self.send(SERVICE_CIDRS, {"metadata": {"name": name}, "spec": {"cidrs": list(ranges)}, "status": READY}, change)

    def service(self, allocator: ServiceAllocator) -> str:
        """The address of a new Service."""
        ports = [{"port": 80, "protocol": "TCP"}]
        spec: dict[str, Any] = {"type": "ClusterIP", "ports": ports, "ipFamilies": ["IPv4"]}
        service = {"metadata": {"name": "a", "uid": str(self._revision)}, "spec": spec}
        allocator.allocate(cast(Registry, None), service, None)
        self.send("/services/", service)
        return str(spec["clusterIP"])


def allocator_of(events: Events, cidr: str) -> ServiceAllocator:
    return ServiceAllocator(cast(Store, events), cidr)


@pytest.mark.parametrize("ranges", [("10.9.0.0/31",), ("10.9.0.0/32",), ("fd00::/112",), ()])
def test_a_range_without_addresses_for_services_is_passed_over(ranges: tuple[str, ...]) -> None:
    events = Events()
    allocator = allocator_of(events, "10.0.0.0/30")  # the kubernetes Service has .1
    events.cidr("small", *ranges)
    assert events.service(allocator) == "10.0.0.2"
    with pytest.raises(StatusError, match="range is full"):
        events.service(allocator)
    events.cidr("more", "10.9.1.0/30")
    assert {events.service(allocator), events.service(allocator)} == {"10.9.1.1", "10.9.1.2"}


def test_a_change_of_a_range_keeps_its_turn() -> None:
    events = Events()
    allocator = allocator_of(events, "10.0.0.0/30")
    events.cidr("kubernetes", "10.0.0.0/30")
    events.cidr("more", "10.9.1.0/24")
    events.cidr("kubernetes", "10.0.0.0/30", change="MODIFIED")
    assert events.service(allocator) == "10.0.0.2"


def test_addresses_of_others_are_left_out() -> None:
    events = Events()
    allocator = allocator_of(events, "10.0.0.0/29")
    for number in (2, 3, 4, 6):
        events.send(IP_ADDRESSES, {"metadata": {"name": f"10.0.0.{number}"}})
    assert events.service(allocator) == "10.0.0.5"
