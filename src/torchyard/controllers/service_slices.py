"""The EndpointSlices that one manager keeps: a cache by service, and the writes that make them as desired."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchyard.api.errors import StatusError
from torchyard.api.gvr import ENDPOINT_SLICES
from torchyard.api.objects import Object
from torchyard.core.service.slices import MANAGED_BY, SERVICE_NAME
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.workqueue import WorkQueue

Update = Callable[[Object, Object], Object | None]  # the current slice, the desired one: what to write, if anything


class ServiceSlices:
    def __init__(self, client: Client, informers: InformerFactory, manager: str) -> None:
        self._client = client
        self.informer = informers.for_resource(
            ENDPOINT_SLICES, labels=f"{MANAGED_BY}={manager}", indexes={"service": _service_of}
        )

    def feed(self, queue: WorkQueue[Key]) -> None:
        """Add the service of every slice that changes."""

        def slice_changed(_change: str, obj: Object, _before: Object | None) -> None:
            metadata = obj["metadata"]
            queue.add((metadata["namespace"], metadata["labels"].get(SERVICE_NAME, "")))

        self.informer.on_change(slice_changed)

    async def replace(self, key: Key, desired: Iterable[Object], update: Update) -> None:
        """Create, update and delete the slices of a service."""
        slices = self.informer.by("service", "/".join(key))
        current = {endpoint_slice["metadata"]["name"]: endpoint_slice for endpoint_slice in slices}
        for endpoint_slice in desired:
            await self._create_or_update(endpoint_slice, current.pop(endpoint_slice["metadata"]["name"], None), update)
        for surplus in current.values():
            metadata = surplus["metadata"]
            await self._client.delete(ENDPOINT_SLICES, metadata["name"], key[0], uid=metadata["uid"])

    async def _create_or_update(self, desired: Object, current: Object | None, update: Update) -> None:
        if current is None:
            try:
                await self._client.create(ENDPOINT_SLICES, desired)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind and will deliver it
                    raise
        elif (updated := update(current, desired)) is not None:
            await self._client.update(ENDPOINT_SLICES, updated)


def _service_of(obj: Object) -> tuple[str]:
    metadata = obj["metadata"]
    return (f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(SERVICE_NAME, '')}",)
