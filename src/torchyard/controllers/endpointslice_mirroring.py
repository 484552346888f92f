"""EndpointSlice mirroring: keeps slices of the Endpoints that users write, as `core.service.mirror` describes them."""

from __future__ import annotations

from torchyard.api.errors import StatusError
from torchyard.api.gvr import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.core.service.mirror import MIRROR_MANAGER, is_mirrored, mirrored_slices
from torchyard.core.service.slices import MANAGED_BY, SERVICE_NAME
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class EndpointSliceMirroringController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._endpoints = informers.for_resource(ENDPOINTS)
        self._services = informers.for_resource(SERVICES)
        self._slices = informers.for_resource(
            ENDPOINT_SLICES, labels=f"{MANAGED_BY}={MIRROR_MANAGER}", indexes={"service": _service_of}
        )
        sources = (self._endpoints, self._services, self._slices)
        self.controller = Controller("endpointslicemirroring-controller", self._reconcile, sources)
        for informer in (self._endpoints, self._services):
            informer.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))
        self._slices.on_change(self._slice_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _slice_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        metadata = obj["metadata"]
        self.controller.queue.add((metadata["namespace"], metadata["labels"].get(SERVICE_NAME, "")))

    async def _reconcile(self, key: Key) -> None:
        endpoints, service = self._endpoints.get(*key), self._services.get(*key)
        current = {each["metadata"]["name"]: each for each in self._slices.by("service", "/".join(key))}
        if endpoints is not None and is_mirrored(endpoints, service):
            for desired in mirrored_slices(endpoints):
                await self._create_or_update(desired, current.pop(desired["metadata"]["name"], None))
        for surplus in current.values():
            metadata = surplus["metadata"]
            await self._client.delete(ENDPOINT_SLICES, metadata["name"], key[0], uid=metadata["uid"])

    async def _create_or_update(self, desired: Object, current: Object | None) -> None:
        if current is None:
            try:
                await self._client.create(ENDPOINT_SLICES, desired)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind and will deliver it
                    raise
            return
        metadata = {**current["metadata"], "labels": desired["metadata"]["labels"]}
        metadata["annotations"] = desired["metadata"].get("annotations") or {}
        is_same = all(current.get(part) == desired[part] for part in ("endpoints", "ports")) and all(
            (current["metadata"].get(part) or {}) == metadata[part] for part in ("labels", "annotations")
        )
        if not is_same:
            await self._client.update(ENDPOINT_SLICES, {**current, **desired, "metadata": metadata})


def _service_of(obj: Object) -> tuple[str]:
    metadata = obj["metadata"]
    return (f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(SERVICE_NAME, '')}",)
