"""The pod writes of a Job: create, delete, release, adopt and disown, with the job's events about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.job import labels, messages
from torchyard.api.objects import Object
from torchyard.controllers.concurrency import gather_all
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.core.job.pod_plan import PodDeletion
from torchyard.core.job.pods import owner_reference
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder

_WRITES_AT_ONCE = 32
# Upstream begins with one pod. Each batch waits until the one before is written, and meanwhile its pods start and take
# the processor; the ranks of a training have to wait for the last of them.
_FIRST_BATCH = 4
_DROP_FINALIZER = {"$deleteFromPrimitiveList/finalizers": [labels.TRACKING_FINALIZER]}


class CreateResult(NamedTuple):
    missing: int
    error: StatusError | None


class JobPodWriter:
    def __init__(self, client: Client, recorder: EventRecorder, written: MutationCache) -> None:
        self._client, self._recorder, self._pod_cache = client, recorder, written
        self._write_slots = asyncio.Semaphore(_WRITES_AT_ONCE)

    async def create(self, job: Object, pods: Sequence[Object]) -> CreateResult:
        """In batches that double as long as they succeed, so that a failure affects a few pods and not hundreds."""
        done, size = 0, _FIRST_BATCH
        while done < len(pods):
            batch = pods[done : done + size]
            answers = await asyncio.gather(*(self._create(job, pod) for pod in batch))
            errors = [error for error in answers if error is not None]
            if errors:
                return CreateResult(len(pods) - done - len(batch) + len(errors), errors[0])
            done, size = done + len(batch), size * 2
        return CreateResult(0, None)

    async def _create(self, job: Object, pod: Object) -> StatusError | None:
        async with self._write_slots:
            try:
                created = await self._client.create(PODS, pod)
            except StatusError as error:
                if not error.is_namespace_terminating:
                    self._recorder.event(job, "Warning", messages.NOT_CREATED, messages.not_created(error.message))
                return error
        self._pod_cache.record(created)
        self._recorder.event(job, "Normal", messages.CREATED, messages.pod_created(created["metadata"]["name"]))
        return None

    async def delete(self, job: Object, deletions: Iterable[PodDeletion]) -> None:
        await gather_all(self._delete(job, deletion) for deletion in deletions)

    async def _delete(self, job: Object, deletion: PodDeletion) -> None:
        metadata = deletion.pod["metadata"]
        if deletion.is_surplus:
            await self._patch(deletion.pod, _DROP_FINALIZER)
        async with self._write_slots:
            try:
                deleted = await self._client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
            except StatusError as error:
                if error.status in (404, 409):  # already gone, or another pod has its name
                    return
                text = messages.not_deleted(metadata["name"], error.message)
                self._recorder.event(job, "Warning", messages.NOT_DELETED, text)
                raise
        if deleted.get("metadata", {}).get("deletionTimestamp"):
            self._pod_cache.record(deleted)
        self._recorder.event(job, "Normal", messages.DELETED, messages.pod_deleted(metadata["name"]))

    async def release(self, pods: Iterable[Object]) -> None:
        """Remove the job's finalizer."""
        await gather_all(self._patch(pod, _DROP_FINALIZER) for pod in pods)

    async def adopt(self, job: Object, pods: Iterable[Object]) -> list[Object]:
        ownership = {"ownerReferences": [owner_reference(job)], "finalizers": [labels.TRACKING_FINALIZER]}
        adopted = await gather_all(self._patch(pod, {**ownership, "uid": pod["metadata"]["uid"]}) for pod in pods)
        return [pod for pod in adopted if pod is not None]

    async def disown(self, job: Object, pods: Iterable[Object]) -> None:
        ownership = {"ownerReferences": [{"$patch": "delete", "uid": job["metadata"]["uid"]}], **_DROP_FINALIZER}
        await gather_all(self._patch(pod, {**ownership, "uid": pod["metadata"]["uid"]}) for pod in pods)

    async def _patch(self, pod: Object, metadata: Object) -> Object | None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        async with self._write_slots:
            try:
                patched = await self._client.patch(PODS, name, {"metadata": metadata}, namespace, kind="strategic")
            except StatusError as error:
                if error.status == 404:
                    return None
                raise
        self._pod_cache.record(patched)
        return patched
