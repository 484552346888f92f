"""Creates and deletes the pods of a workload, with the workload's events about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.workload import messages
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer

_WRITES_AT_ONCE = 32


class PodWriter:
    """Remembers pods that it deleted until the informer shows it, so that none is counted and deleted twice."""

    def __init__(self, client: Client, recorder: EventRecorder, pods: Informer, cache: MutationCache) -> None:
        self._client, self._recorder, self._cache = client, recorder, cache
        self._write_slots = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._deleted: set[str] = set()
        pods.on_change(self._pod_changed)

    def _pod_changed(self, change: str, pod: Object, _before: Object | None) -> None:
        if self._deleted and (change == "DELETED" or pod["metadata"].get("deletionTimestamp")):
            self._deleted.discard(pod["metadata"]["uid"])

    def present(self, pods: Iterable[Object]) -> list[Object]:
        """The pods without those that were just deleted."""
        return [pod for pod in pods if pod["metadata"]["uid"] not in self._deleted] if self._deleted else list(pods)

    async def create(self, owner: Object, pods: Sequence[Object]) -> StatusError | None:
        """In batches that double as long as they succeed, so that a failure affects one pod and not hundreds."""
        done, size = 0, 1
        while done < len(pods):
            batch = pods[done : done + size]
            answers = await asyncio.gather(*(self._create(owner, pod) for pod in batch))
            errors = [error for error in answers if error is not None]
            if errors:
                return errors[0]
            done, size = done + len(batch), size * 2
        return None

    async def _create(self, owner: Object, pod: Object) -> StatusError | None:
        async with self._write_slots:
            try:
                created = await self._client.create(PODS, pod)
            except StatusError as error:
                if error.is_namespace_terminating:
                    return None  # nothing can be created there, and no event is needed
                text = messages.pod_not_created(error.message)
                self._recorder.event(owner, "Warning", messages.NOT_CREATED, text)
                return error
        self._cache.record(created)
        text = messages.pod_created(created["metadata"]["name"])
        self._recorder.event(owner, "Normal", messages.CREATED, text)
        return None

    async def delete(self, owner: Object, pods: Iterable[Object]) -> StatusError | None:
        answers = await asyncio.gather(*(self._delete(owner, pod) for pod in pods))
        return next((error for error in answers if error is not None), None)

    async def _delete(self, owner: Object, pod: Object) -> StatusError | None:
        metadata = pod["metadata"]
        async with self._write_slots:
            try:
                await self.remove(pod)
            except StatusError as error:
                text = messages.pod_not_deleted(error.message)
                self._recorder.event(owner, "Warning", messages.NOT_DELETED, text)
                return error
        self._recorder.event(owner, "Normal", messages.DELETED, messages.pod_deleted(metadata["name"]))
        return None

    async def remove(self, pod: Object) -> None:
        """Delete a pod without an event."""
        metadata = pod["metadata"]
        self._deleted.add(metadata["uid"])
        try:
            await self._client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except BaseException as error:
            self._deleted.discard(metadata["uid"])  # whatever failed: the next pass must see it
            is_gone = isinstance(error, StatusError) and error.status in (404, 409)  # or another pod has its name
            if not is_gone:
                raise
