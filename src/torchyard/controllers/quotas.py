"""Resource quotas: keeps their usage in their status. The API server enforces them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import RESOURCE_QUOTAS
from torchyard.controllers.loop import Controller
from torchyard.core.quota.status import counted_resources, quota_status
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, by_namespace, key_of
from torchyard.kube.informer_factory import InformerFactory

# Many objects change together; they are counted once. Many objects are counted less often: seconds for each of them.
PAUSE, _PAUSE_PER_OBJECT = 0.2, 0.0002
# A terminating pod stops counting when its grace period ends, and no event reports that.
RESYNC_SECONDS = 300.0
# More are counted in a thread, so that the event loop goes on.
_MANY_OBJECTS = 500


class QuotaController:
    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        resource: Callable[[str, str], GroupVersionResource | None],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._resource = resource
        self._clock = clock
        self._pauses: dict[Key, float] = {}  # by quota
        self._quotas = informers.for_resource(RESOURCE_QUOTAS, indexes={"namespace": by_namespace})
        self.controller = Controller("resourcequota", self._reconcile, [self._quotas], workers=1)
        self._quotas.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))

    async def run(self) -> None:
        await self.controller.run()

    def observe(self, group: str, plural: str, namespace: str) -> None:
        """An object of this resource was created, changed or deleted in a namespace."""
        if not len(self._quotas):  # the usual case; this is called for every write
            return
        for quota in self._quotas.by("namespace", namespace):
            if (group, plural) in counted_resources(quota):
                self.controller.queue.add_after(key_of(quota), self._pauses.get(key_of(quota), PAUSE))

    async def _reconcile(self, key: Key) -> float | None:
        quota = self._quotas.get(*key)
        if quota is None or quota["metadata"].get("deletionTimestamp"):
            self._pauses.pop(key, None)
            return None
        objects = {}
        for group, plural in counted_resources(quota):
            ref = self._resource(group, plural)
            if ref is not None:
                objects[group, plural] = (await self._client.list(ref, key[0])).items
        count = sum(map(len, objects.values()))
        if count > _MANY_OBJECTS:
            status = await asyncio.to_thread(quota_status, quota, objects, self._clock())
        else:
            status = quota_status(quota, objects, self._clock())
        self._pauses[key] = max(PAUSE, count * _PAUSE_PER_OBJECT)
        if status != quota.get("status"):
            await self._client.update(RESOURCE_QUOTAS, {**quota, "status": status}, subresource="status")
        return RESYNC_SECONDS
