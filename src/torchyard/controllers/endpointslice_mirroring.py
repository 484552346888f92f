"""EndpointSlice mirroring: keeps slices of the Endpoints that users write, as `core.service.mirror` describes them."""

from __future__ import annotations

from torchyard.api.gvr import ENDPOINTS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.service_slices import ServiceSlices
from torchyard.core.service.mirror import MIRROR_MANAGER, is_mirrored, mirrored_slices
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class EndpointSliceMirroringController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._endpoints = informers.for_resource(ENDPOINTS)
        self._services = informers.for_resource(SERVICES)
        self._slices = ServiceSlices(client, informers, MIRROR_MANAGER)
        sources = (self._endpoints, self._services, self._slices.informer)
        self.controller = Controller("endpointslicemirroring-controller", self._reconcile, sources)
        for informer in (self._endpoints, self._services):
            informer.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))
        self._slices.feed(self.controller.queue)

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        endpoints, service = self._endpoints.get(*key), self._services.get(*key)
        is_wanted = endpoints is not None and is_mirrored(endpoints, service)
        await self._slices.replace(key, mirrored_slices(endpoints) if endpoints and is_wanted else (), _updated)


def _updated(current: Object, desired: Object) -> Object | None:
    metadata = {**current["metadata"], "labels": desired["metadata"]["labels"]}
    metadata["annotations"] = desired["metadata"].get("annotations") or {}
    is_same = all(current.get(part) == desired[part] for part in ("endpoints", "ports")) and all(
        (current["metadata"].get(part) or {}) == metadata[part] for part in ("labels", "annotations")
    )
    return None if is_same else {**current, **desired, "metadata": metadata}
