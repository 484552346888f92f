"""TrainJobs: makes the JobSet and the other objects of a job, and lets `core.trainjob` decide about its status.

The same controller runs on the plane and on a cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.jobset import names as jobsets
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages, names
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.loop import Controller, Observe
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.trainjob_failures import FirstFailures
from torchyard.controllers.trainjob_objects import TrainJobObjects
from torchyard.core.training.failures import container_failures
from torchyard.core.trainjob.decide import TrainJobDecision, decide, needs_objects, updates_jobset
from torchyard.core.trainjob.snapshot import make_snapshot, runtime_of
from torchyard.core.trainjob.status import differs_only_in_progress, is_finished
from torchyard.core.trainjob.status_server import StatusServer
from torchyard.core.trainjob.view import TrainJobView
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)

TRAINJOBS = GroupVersionResource(names.GROUP, names.VERSION, names.PLURAL)
RUNTIMES = {
    names.RUNTIME_KIND: GroupVersionResource(names.GROUP, names.VERSION, names.RUNTIME_PLURAL),
    names.CLUSTER_RUNTIME_KIND: GroupVersionResource(
        names.GROUP, names.VERSION, names.CLUSTER_RUNTIME_PLURAL, namespaced=False
    ),
}


class TrainJobController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        selector: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        workers: int = 8,
        observe: Observe = lambda _result, _seconds: None,
        status_server: StatusServer | None = None,
    ) -> None:
        """`selector` limits the TrainJobs; to `status_server` their nodes report their progress."""
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, names.CONTROLLER, clock=clock)
        self._jobs = informers.for_resource(TRAINJOBS, labels=selector)
        self._jobsets = informers.for_resource(JOBSETS)
        self._failures = FirstFailures(client, informers)
        self._job_cache = MutationCache(self._jobs)
        self._jobset_cache = MutationCache(self._jobsets)
        self._objects = TrainJobObjects(client, status_server)
        sources = [self._jobs, self._jobsets, self._failures.pods]
        self.controller = Controller(names.CONTROLLER, self._reconcile, sources, workers=workers, observe=observe)
        self._jobs.on_change(self._job_changed)
        self._jobsets.on_change(self._jobset_changed)
        self._failures.pods.on_change(self._pod_changed)

    async def run(self) -> None:
        """May be called again: work that was cancelled is done again."""
        for job in self._jobs:
            self.controller.queue.add(key_of(job))
        await run_parts(recorder=self.recorder.run, controller=self.controller.run)

    def _job_changed(self, change: str, job: Object, before: Object | None) -> None:
        # Progress is written every few seconds, and nothing is decided from it.
        if change != "MODIFIED" or before is None or not differs_only_in_progress(job, before):
            self.controller.queue.add(key_of(job))

    def _jobset_changed(self, _change: str, jobset: Object, _before: Object | None) -> None:
        for reference in jobset["metadata"].get("ownerReferences") or ():
            if reference.get("controller") and reference["kind"] == names.KIND:
                self.controller.queue.add((jobset["metadata"]["namespace"], reference["name"]))

    def _pod_changed(self, change: str, pod: Object, _before: Object | None) -> None:
        if change != "DELETED" and container_failures(pod):
            name = (pod["metadata"].get("labels") or {}).get(jobsets.JOBSET_NAME, "")
            self.controller.queue.add((pod["metadata"]["namespace"], name))

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._job_cache.get(key)
        if cached is None:
            return None
        job = {**cached, "apiVersion": names.API_VERSION, "kind": names.KIND}
        jobset = self._jobset(job)
        failed: Exception | None = None
        if needs_objects(job):
            try:
                jobset = await self._make_objects(job, jobset)
                await self._resize(job, jobset)
            except Exception as error:  # raised again below, when the job says why it has no pods
                failed = error
        failure = None if is_finished(job) else await self._failures.find(job, jobset)
        not_made = "" if failed is None or _is_conflict(failed) else messages.not_made(_text_of(failed))
        decision = decide(TrainJobView(job, self._clock(), jobset, failure, not_made))
        await self._apply(job, jobset, decision)
        if failed is not None:
            raise failed
        return decision.wake_after

    def _jobset(self, job: Object) -> Object | None:
        """The JobSet of this job; None if it does not exist or belongs to another object."""
        uid = job["metadata"]["uid"]
        jobset = self._jobset_cache.get(key_of(job))
        owners = () if jobset is None else jobset["metadata"].get("ownerReferences") or ()
        return jobset if any(owner["uid"] == uid for owner in owners) else None

    async def _make_objects(self, job: Object, jobset: Object | None) -> Object | None:
        if jobset is not None and (
            not updates_jobset(job, jobset) or jobset["metadata"].get("deletionTimestamp") is not None
        ):
            return jobset
        if jobset is None and self._jobsets.get(*key_of(job)) is not None:
            raise YardError(messages.foreign_jobset(job["metadata"]["name"]))
        runtime = await self._runtime(job)
        created = await self._objects.make(job, runtime, jobset)
        self._jobset_cache.record(created)
        return created

    async def _resize(self, job: Object, jobset: Object | None) -> None:
        if jobset is None or job["spec"].get("suspend") or is_terminating(jobset):
            return
        if resized := await self._objects.resize(job, jobset):
            self.recorder.event(job, "Normal", messages.RESIZED, resized)

    async def _runtime(self, job: Object) -> Object:
        """The runtime of the snapshot; for a new job the runtime itself, of which a snapshot is made."""
        name, namespace = names.snapshot_name(job["metadata"]["name"]), job["metadata"]["namespace"]
        snapshot = await self._client.find(CONFIG_MAPS, name, namespace) if job.get("status") else None
        if snapshot is None:
            reference = names.runtime_reference(job)
            runtime = await self._client.find(RUNTIMES[reference["kind"]], reference["name"], namespace)
            if runtime is None:
                raise YardError(messages.runtime_missing(reference["kind"], reference["name"]))
            try:
                snapshot = await self._client.create(CONFIG_MAPS, make_snapshot(job, runtime))
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                snapshot = await self._client.get(CONFIG_MAPS, name, namespace)
        return runtime_of(snapshot, job)

    async def _apply(self, job: Object, jobset: Object | None, decision: TrainJobDecision) -> None:
        metadata = job["metadata"]
        if decision.status is not None:
            written = await self._client.patch(
                TRAINJOBS,
                metadata["name"],
                {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": decision.status},
                metadata["namespace"],
                subresource="status",
            )
            self._job_cache.record(written)
            for event in decision.events:
                self.recorder.event(job, event.kind, event.reason, event.message)
        if decision.delete_jobset and jobset is not None:
            await self._delete(JOBSETS, jobset)
        if decision.delete_job:
            await self._delete(TRAINJOBS, job)

    async def _delete(self, ref: GroupVersionResource, obj: Object) -> None:
        """Delete this object, not another one that has its name."""
        metadata = obj["metadata"]
        try:
            await self._client.delete(ref, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except StatusError as error:
            if error.status != 404:
                raise


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, StatusError) and error.reason == "Conflict"


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, YardError) else messages.unexpected_error(error)
