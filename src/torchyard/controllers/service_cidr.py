"""ServiceCIDRs: sets their finalizer and condition, and lets them go when no Service needs them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.gvr import IP_ADDRESSES, SERVICE_CIDRS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.core.service.service_cidr import decide
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class ServiceCIDRController:
    name = "service-cidr-controller"

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self._cidrs = informers.for_resource(SERVICE_CIDRS)
        self._addresses = informers.for_resource(IP_ADDRESSES)
        self._controller = Controller(self.name, self._reconcile, [self._cidrs, self._addresses], workers=1)
        self._cidrs.on_change(lambda _change, _cidr, _before: self._look_at_all())
        self._addresses.on_change(self._address_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _look_at_all(self) -> None:
        """A range that comes or goes matters to those that overlap it; there are few."""
        for cidr in self._cidrs.all():
            self._controller.queue.add(key_of(cidr))

    def _address_changed(self, change: str, _address: Object, _before: Object | None) -> None:
        if change == "DELETED":
            for cidr in self._cidrs.all():
                if cidr["metadata"].get("deletionTimestamp"):
                    self._controller.queue.add(key_of(cidr))

    async def _reconcile(self, key: Key) -> float | None:
        cidr = self._cidrs.get(*key)
        if cidr is None:
            return None
        others = [other for other in self._cidrs.all() if other is not cidr]
        addresses = [address["metadata"]["name"] for address in self._addresses.all()]
        decision = decide(cidr, others, addresses, self._clock())
        if decision.metadata is not None:
            await self._client.update(SERVICE_CIDRS, decision.metadata)
        if decision.status is not None:
            await self._client.update(SERVICE_CIDRS, decision.status, subresource="status")
        return decision.requeue_after
