"""Writes to Workloads. Writes to the same workload follow each other in the order in which they were decided."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from torchyard.api.errors import StatusError
from torchyard.api.merge_patch import merge_patch
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.core.queue.workload_info import Key
from torchyard.kube.client import Client

_IDLE_AFTER = 0.2  # seconds since the last write was queued: between two of many there is no pause
RETRY_SOON = 0.05  # seconds until a workload that is being written is reconciled again


class QueuedWrite:
    """One write to a workload. It waits for the one that was queued before it."""

    __slots__ = ("key", "next", "previous")

    def __init__(self, key: Key, previous: QueuedWrite | None) -> None:
        self.key = key
        self.next: asyncio.Future[Object | None] | None = None  # gets what was written; few have a next
        self.previous: asyncio.Future[Object | None] | None = None
        if previous is not None:
            self.previous = previous.next = asyncio.get_running_loop().create_future()


class WorkloadWriter:
    def __init__(self, client: Client, on_written: Callable[[Key, Object], None]) -> None:
        """`on_written` gets the latest known version when the last queued write to a workload is done."""
        self._client, self._on_written = client, on_written
        self._last: dict[Key, QueuedWrite] = {}  # the last queued write of each workload that is being written
        self._idle_at = 0.0

    def enqueue(self, key: Key) -> QueuedWrite:
        """Call it when a write is decided: from then on what was assumed of the workload counts, not its watch."""
        write = self._last[key] = QueuedWrite(key, self._last.get(key))
        self._idle_at = time.monotonic() + _IDLE_AFTER
        return write

    async def write_status(self, key: Key, obj: Object, status: Object) -> Object | None:
        """Write a status that was decided for `obj`; None if the workload is being written or has changed."""
        if key in self._last:
            return None
        return await self.write_queued(self.enqueue(key), obj, lambda _: status)

    async def write_queued(self, write: QueuedWrite, obj: Object, change: Callable[[Object], Object]) -> Object | None:
        """Write the status that `change` computes from what the previous write wrote, or from `obj` if there is none.

        Returns None if the previous write failed, or the workload has changed or is gone.
        """
        known, written = obj, None
        try:
            before = obj if write.previous is None else await write.previous
            if before is not None:
                known = before
                written = known = await self._patch_status(known, change(known))
        except StatusError as error:
            if error.status not in (404, 409):
                raise
        finally:
            self._finish(write, known, written)
        return written

    def abandon(self, write: QueuedWrite, known: Object) -> None:
        """Give up a write that has not started. `known` is the latest known version of the workload."""
        self._finish(write, known, None)

    def _finish(self, write: QueuedWrite, known: Object, written: Object | None) -> None:
        if write.next is None:
            del self._last[write.key]
            self._on_written(write.key, known)
        elif not write.next.cancelled():
            write.next.set_result(written)

    async def _patch_status(self, obj: Object, status: Object) -> Object:
        """Send only what differs, with the resource version: the pod templates need not travel."""
        metadata = obj["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": merge_patch(obj.get("status") or {}, status),
        }
        return await self._client.patch(WORKLOADS, metadata["name"], patch, metadata["namespace"], subresource="status")

    async def remove_finalizer(self, workload: Object) -> None:
        """All pods of the workload are gone, so it may be deleted."""
        metadata = workload["metadata"]
        finalizers = metadata.get("finalizers") or []
        if names.IN_USE not in finalizers:
            return
        remaining = [finalizer for finalizer in finalizers if finalizer != names.IN_USE]
        precondition = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        patch = {"metadata": {**precondition, "finalizers": remaining}}
        try:
            await self._client.patch(WORKLOADS, metadata["name"], patch, metadata["namespace"])
        except StatusError as error:
            if error.status != 404:
                raise

    def is_writing(self, key: Key) -> bool:
        return key in self._last

    def is_busy(self) -> bool:
        return bool(self._last) or time.monotonic() < self._idle_at
