"""EndpointSlices: keeps the slices of every service with a selector as `core.service.slices` describes them."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.service_pods import ServicePods
from torchyard.controllers.service_slices import ServiceSlices
from torchyard.core.service.slices import MANAGER, desired_slices, has_slices
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory


class EndpointSliceController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._service_pods = ServicePods(informers)
        self._slices = ServiceSlices(client, informers, MANAGER)
        sources = (self._service_pods.services, self._service_pods.pods, self._slices.informer)
        self.controller = Controller("endpointslice-controller", self._reconcile, sources)
        self._service_pods.feed(self.controller.queue)
        self._slices.feed(self.controller.queue)

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        service = self._service_pods.services.get(*key)
        if service is None or not has_slices(service) or service["metadata"].get("deletionTimestamp"):
            return
        await self._slices.replace(key, desired_slices(service, self._service_pods.pods_of(service)), _updated)


def _updated(current: Object, desired: Object) -> Object | None:
    if all((current.get(part) or []) == desired[part] for part in ("endpoints", "ports")):
        return None
    return {**current, "endpoints": desired["endpoints"], "ports": desired["ports"]}
