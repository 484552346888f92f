"""Deletes finished Jobs after their time to live, pods first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS
from torchyard.controllers.loop import Controller
from torchyard.core.job.ttl import seconds_left
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class TTLAfterFinishedController:
    """`run` until cancelled."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self._jobs = informers.for_resource(JOBS)
        self._controller = Controller("ttl-after-finished-controller", self._reconcile, [self._jobs])
        self._jobs.on_change(lambda _change, job, _before: self._controller.queue.add(key_of(job)))

    async def run(self) -> None:
        await self._controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        remaining = seconds_left(job, self._clock())
        if remaining is None or remaining > 0:
            return remaining
        metadata = job["metadata"]
        try:
            # With the resource version: the TTL may have been extended a moment ago.
            await self._client.delete(
                JOBS,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                revision=metadata["resourceVersion"],
                propagation="Foreground",
            )
        except StatusError as error:
            if error.status != 404:
                raise
        return None
