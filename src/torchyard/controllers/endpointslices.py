"""EndpointSlices: keeps the slices of every service with a selector as `core.service.slices` describes them."""

from __future__ import annotations

from torchyard.api.errors import StatusError
from torchyard.api.gvr import ENDPOINT_SLICES
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.service_pods import ServicePods
from torchyard.core.service.slices import MANAGED_BY, MANAGER, SERVICE_NAME, desired_slices, has_slices
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory


class EndpointSliceController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._service_pods = ServicePods(informers)
        self._slices = informers.for_resource(
            ENDPOINT_SLICES, labels=f"{MANAGED_BY}={MANAGER}", indexes={"service": _service_of}
        )
        sources = (self._service_pods.services, self._service_pods.pods, self._slices)
        self.controller = Controller("endpointslice-controller", self._reconcile, sources)
        self._service_pods.feed(self.controller.queue)
        self._slices.on_change(self._slice_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _slice_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        metadata = obj["metadata"]
        self.controller.queue.add((metadata["namespace"], metadata["labels"].get(SERVICE_NAME, "")))

    async def _reconcile(self, key: Key) -> None:
        service = self._service_pods.services.get(*key)
        if service is None or not has_slices(service) or service["metadata"].get("deletionTimestamp"):
            return
        current = {
            endpoint_slice["metadata"]["name"]: endpoint_slice
            for endpoint_slice in self._slices.by("service", "/".join(key))
        }
        for desired in desired_slices(service, self._service_pods.pods_of(service)):
            await self._create_or_update(desired, current.pop(desired["metadata"]["name"], None))
        for surplus in current.values():
            await self._client.delete(
                ENDPOINT_SLICES, surplus["metadata"]["name"], key[0], uid=surplus["metadata"]["uid"]
            )

    async def _create_or_update(self, desired: Object, current: Object | None) -> None:
        if current is None:
            try:
                await self._client.create(ENDPOINT_SLICES, desired)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind and will deliver it
                    raise
        elif any((current.get(part) or []) != desired[part] for part in ("endpoints", "ports")):
            await self._client.update(
                ENDPOINT_SLICES, {**current, "endpoints": desired["endpoints"], "ports": desired["ports"]}
            )


def _service_of(obj: Object) -> tuple[str]:
    metadata = obj["metadata"]
    return (f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(SERVICE_NAME, '')}",)
