"""Endpoints: keeps the one of every service with a selector as `core.service.endpoints` wants it."""

from __future__ import annotations

from torchyard.api.errors import StatusError
from torchyard.api.gvr import ENDPOINTS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.service_pods import ServicePods
from torchyard.core.service.endpoints import MANAGED_BY, MANAGER, OVER_CAPACITY, desired_endpoints
from torchyard.core.service.slices import has_slices
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class EndpointsController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._known = ServicePods(informers)
        self._made = informers.for_resource(ENDPOINTS)
        sources = (self._known.services, self._known.pods, self._made)
        self.controller = Controller("endpoints-controller", self._reconcile, sources)
        self._known.feed(self.controller.queue)
        self._made.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        service, there = self._known.services.get(*key), self._made.get(*key)
        if service is None:
            await self._drop(there)
        elif has_slices(service) and not service["metadata"].get("deletionTimestamp"):
            await self._keep(desired_endpoints(service, self._known.pods_of(service)), there)

    async def _drop(self, there: Object | None) -> None:
        """They have no owner that would take them along; what somebody else made stays."""
        if there is not None and (there["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER:
            namespace, name = key_of(there)
            await self._client.delete(ENDPOINTS, name, namespace, uid=there["metadata"]["uid"])

    async def _keep(self, wanted: Object, there: Object | None) -> None:
        if there is None:
            try:
                await self._client.create(ENDPOINTS, wanted)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind, and will bring it
                    raise
            return
        metadata, labels = there["metadata"], wanted["metadata"]["labels"]
        marks = dict(metadata.get("annotations") or {})
        marks.pop(OVER_CAPACITY, None)
        marks |= wanted["metadata"].get("annotations") or {}
        subsets = wanted.get("subsets") or []
        shown = (metadata.get("labels") or {}, metadata.get("annotations") or {}, there.get("subsets") or [])
        if shown != (labels, marks, subsets):
            changed = {**metadata, "labels": labels, "annotations": marks}
            await self._client.update(ENDPOINTS, {**there, "metadata": changed, "subsets": subsets})
