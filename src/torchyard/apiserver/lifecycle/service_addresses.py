"""IPAddress objects: one for each cluster IP of a Service, as kube-apiserver's allocator keeps them.

The allocator of this server reads the Services themselves, so an IPAddress is a record for others, written a moment
after its Service. An IPAddress of another writer reserves its address.
"""

from __future__ import annotations

import asyncio
import logging

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.registry.service_allocator import IP_ADDRESSES, MANAGED_BY, MANAGER, cluster_ips
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_GROUP, _VERSION, _PLURAL = "networking.k8s.io", "v1", "ipaddresses"
_FAMILY = "ipaddress.kubernetes.io/ip-family"


class ServiceAddresses:
    """`run` until cancelled."""

    def __init__(self, registry: Registry, user: User) -> None:
        self._registry, self._user = registry, user
        self._owners: dict[str, tuple[str, str]] = {}  # the namespace and name of the Service, by address
        self._queue: WorkQueue[str] = WorkQueue()
        registry.store.listen("/services/", self._on_service)
        registry.store.listen(IP_ADDRESSES, self._on_address)

    def _on_service(self, event: StoreEvent) -> None:
        before = set(cluster_ips(event.previous.object())) if event.previous is not None else set()
        service = event.record.object()
        now = set(cluster_ips(service)) if event.change != "DELETED" else set()
        metadata = service["metadata"]
        for address in before - now:
            self._owners.pop(address, None)
        for address in now:
            self._owners[address] = (metadata["namespace"], metadata["name"])
        if before != now:
            self._look_at(before | now)

    def _on_address(self, event: StoreEvent) -> None:
        address = event.record.object()
        if event.change == "DELETED" or _is_managed(address):
            self._look_at({address["metadata"]["name"]})

    def _look_at(self, addresses: set[str]) -> None:
        for address in addresses:
            self._queue.add(address)

    async def run(self) -> None:
        try:
            while True:
                await self._work(await self._queue.get())
        except asyncio.CancelledError:
            self._queue.close()
            raise

    async def _work(self, address: str) -> None:
        try:
            await self._reconcile(address)
        except Exception as error:  # the other addresses are written all the same
            delay, is_unexpected = self._queue.add_rate_limited(address), not isinstance(error, StatusError)
            text = "IPAddress not written: name=%s retry_seconds=%.2f error=%s"
            log.warning(text, address, delay, error, exc_info=is_unexpected)
        else:
            self._queue.forget(address)
        finally:
            self._queue.done(address)

    async def _reconcile(self, address: str) -> None:
        owner = self._owners.get(address)
        current = self._registry.lookup.get(_GROUP, _PLURAL, "", address)
        try:
            if current is not None and _is_managed(current) and _parent(current) != owner:
                await delete(self._registry, self._context("delete", address), DeleteOptions())
                current = None
            if current is None and owner is not None:
                await create(self._registry, self._context("create"), _ip_address(address, owner))
        except StatusError as error:
            if error.status not in (404, 409):  # another writer was faster, and its change comes as an event
                raise

    def _context(self, verb: str, name: str = "") -> RequestContext:
        resource = self._registry.catalog.find(_GROUP, _VERSION, _PLURAL)
        assert resource is not None
        return RequestContext(resource, verb, "", name, self._user, self._registry.clock(), manager="kube-apiserver")


def _ip_address(address: str, owner: tuple[str, str]) -> Object:
    namespace, name = owner
    labels = {_FAMILY: "IPv6" if ":" in address else "IPv4", MANAGED_BY: MANAGER}
    return {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": labels},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    }


def _is_managed(address: Object) -> bool:
    return (address["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER


def _parent(address: Object) -> tuple[str, str]:
    parent = (address.get("spec") or {}).get("parentRef") or {}
    return parent.get("namespace") or "", parent.get("name") or ""
