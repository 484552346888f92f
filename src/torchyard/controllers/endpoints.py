"""Endpoints: keeps the Endpoints of every service with a selector as `core.service.endpoints` describes them."""

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
        self._service_pods = ServicePods(informers)
        self._endpoints = informers.for_resource(ENDPOINTS)
        sources = (self._service_pods.services, self._service_pods.pods, self._endpoints)
        self.controller = Controller("endpoints-controller", self._reconcile, sources)
        self._service_pods.feed(self.controller.queue)
        self._endpoints.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        service, current = self._service_pods.services.get(*key), self._endpoints.get(*key)
        if service is None:
            await self._delete_managed(current)
        elif has_slices(service) and not service["metadata"].get("deletionTimestamp"):
            await self._create_or_update(desired_endpoints(service, self._service_pods.pods_of(service)), current)

    async def _delete_managed(self, current: Object | None) -> None:
        """Endpoints have no owner reference, so they are deleted here; those of other managers stay."""
        if current is not None and (current["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER:
            namespace, name = key_of(current)
            await self._client.delete(ENDPOINTS, name, namespace, uid=current["metadata"]["uid"])

    async def _create_or_update(self, desired: Object, current: Object | None) -> None:
        if current is None:
            try:
                await self._client.create(ENDPOINTS, desired)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind and will deliver it
                    raise
            return
        metadata, labels = current["metadata"], desired["metadata"]["labels"]
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(OVER_CAPACITY, None)
        annotations |= desired["metadata"].get("annotations") or {}
        subsets = desired.get("subsets") or []
        published = (metadata.get("labels") or {}, metadata.get("annotations") or {}, current.get("subsets") or [])
        if published != (labels, annotations, subsets):
            changed = {**metadata, "labels": labels, "annotations": annotations}
            await self._client.update(ENDPOINTS, {**current, "metadata": changed, "subsets": subsets})
