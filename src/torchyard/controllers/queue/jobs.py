"""Jobs with a queue: creates a workload for each, and starts, stops and finishes the job as its workload says.

Independent of the kind of job: `core.queue.integrations` has an integration for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

from torchyard.api.conditions import find, has_true_condition, is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.composer import WorkloadComposer, admission_gates
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.pending_events import PendingEvents
from torchyard.controllers.queue.pod_set_infos import pod_set_infos
from torchyard.controllers.queue.priorities import PriorityClassNotFound, class_name_of
from torchyard.controllers.queue.stores import WorkloadStore
from torchyard.controllers.queue.writer import RETRY_SOON
from torchyard.core.queue import lifecycle, slices
from torchyard.core.queue.integrations import CannotStart, JobIntegration, JobResult, PodSetsUnknown, queue_name_of
from torchyard.core.queue.requirements import intern_pod_sets
from torchyard.core.queue.workload_info import to_timestamp
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory

# The fields of a workload's spec, beside its pod sets, that follow the job while it is pending.
_FOLLOWED_FIELDS = ("queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds")


class _JobCache:
    """Jobs from an informer, or as they were written here if the informer has not seen that yet."""

    def __init__(self, client: Client, gvr: GroupVersionResource, informer: Informer) -> None:
        self._client, self._gvr, self._informer = client, gvr, informer
        self._written: dict[Key, Object] = {}

    def get(self, key: Key) -> Object | None:
        job, written = self._informer.get(*key), self._written.get(key)
        if job is None or written is None or self._informer.has_seen(written):
            self._written.pop(key, None)
            return job
        return written

    async def patch(self, job: Object, patch: Object, *, subresource: str = "") -> Object:
        metadata = job["metadata"]
        precondition = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **precondition}}
        written = await self._client.patch(
            self._gvr, metadata["name"], patch, metadata["namespace"], subresource=subresource
        )
        self._written[metadata["namespace"], metadata["name"]] = written
        return written


class _JobEvents:
    def __init__(self, recorder: EventRecorder, gvr: GroupVersionResource, kind: str) -> None:
        self._recorder, self._type = recorder, {"apiVersion": gvr.api_version, "kind": kind}

    def record(
        self, job: Object, type: Literal["Normal", "Warning"], reason: str, message: str, *, once: bool = False
    ) -> None:
        self._recorder.event({**job, **self._type}, type, reason, message, once=once)


class JobReconciler:
    def __init__(
        self,
        store: WorkloadStore,
        informers: InformerFactory,
        integration: JobIntegration,
        gvr: GroupVersionResource,
        *,
        reads: Sequence[Informer] = (),
        workload_created: Callable[[str, float], None] = lambda _kind, _seconds: None,
    ) -> None:
        """`reads` are caches of other objects from which the integration computes the pods of their owner.

        `workload_created` is called with the kind of a job and the seconds from its creation to its workload's."""
        self._store, self._integration = store, integration
        self._client, self._workload_created = store.client, workload_created
        informer = informers.for_resource(gvr)
        self._jobs = _JobCache(store.client, gvr, informer)
        self._composer = WorkloadComposer(informers, integration, gvr)
        name = job_messages.job_component(integration.framework)
        self.recorder = store.new_recorder(name)
        self._events = _JobEvents(self.recorder, gvr, integration.kind)
        sources: list[Informer] = [informer, *self._composer.priorities.informers, *store.informers, *reads]
        self._controller = Controller(name, self._reconcile, sources)
        self._pending_events = PendingEvents()
        informer.on_change(self._job_changed)
        store.workloads.on_change(self._workload_changed)
        self._composer.priorities.on_change(informer, self._controller.queue.add, key_of)
        for source in reads:
            source.on_change(self._owned_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _job_changed(self, _change: str, job: Object, _before: Object | None) -> None:
        if queue_name_of(job):
            self._controller.queue.add((job["metadata"]["namespace"], job["metadata"]["name"]))

    def _owned_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == self._integration.kind:
                self._controller.queue.add((obj["metadata"]["namespace"], owner["name"]))

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == self._integration.kind:
                self._pending_events.workload_changed(change, obj)
                self._controller.queue.add((obj["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(key)
        uid = "" if job is None or job["metadata"].get("deletionTimestamp") else job["metadata"]["uid"]
        workloads = self._store.workloads_of_job(self._integration.kind, key)
        if any(self._store.writer.is_writing(key_of(workload)) for workload in workloads):
            return RETRY_SOON  # a write that succeeds comes back as a change, but one that fails does not
        owned = [workload for workload in workloads if uid in by_owner(workload)]
        unfinished = [workload for workload in owned if not has_true_condition(workload, messages.FINISHED)]
        for workload in workloads:
            if workload not in unfinished:
                await self._store.writer.remove_finalizer(workload)
        if job is None or not uid or not queue_name_of(job):
            return None
        result = self._integration.result(job)
        if result is not None:
            for workload in unfinished:
                await self._finish(job, workload, result)
        elif unfinished:
            await self._reconcile_job(job, slices.current_slice(unfinished))
        elif not owned:
            await self._create_workload(job)
        return None

    async def _create_workload(self, job: Object) -> None:
        """For a job that has none. A job that runs without quota is stopped first."""
        if not self._integration.is_suspended(job):
            await self._stop(job, job_messages.NOT_ADMITTED)
            return
        try:
            workload = self._composer.compose(job)
        except PodSetsUnknown:
            return
        except PriorityClassNotFound as error:
            self._events.record(job, "Warning", job_messages.EVENT_PRIORITY_CLASS_NOT_FOUND, str(error))
            return
        except YardError as error:
            self._events.record(job, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error))
            return
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return  # the informer has not seen it yet
            if error.status in (400, 422):
                self._events.record(job, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error))
                return
            raise
        age = max(0.0, self._store.now() - to_timestamp(job["metadata"]["creationTimestamp"]))
        self._workload_created(self._integration.kind, age)
        self._events.record(
            job, "Normal", job_messages.EVENT_CREATED_WORKLOAD, job_messages.created_workload(*key_of(workload))
        )

    async def _finish(self, job: Object, workload: Object, result: JobResult) -> None:
        reason = messages.REASON_SUCCEEDED if result.succeeded else messages.REASON_FAILED
        status = lifecycle.finish(workload, reason, result.message, self._store.now())
        if await self._store.writer.write_status(key_of(workload), workload, status) is None:
            raise StatusError(409, "Conflict", messages.WORKLOAD_CHANGED)
        self._events.record(
            job, "Normal", job_messages.EVENT_FINISHED_WORKLOAD, job_messages.workload_finished(*key_of(workload))
        )

    async def _reconcile_job(self, job: Object, workload: Object) -> None:
        """Bring an unfinished job into the state that its workload requires."""
        status = workload.get("status") or {}
        conditions = status.get("conditions") or ()
        evicted = find(conditions, messages.EVICTED)
        suspended = self._integration.is_suspended(job)
        if workload["metadata"].get("deletionTimestamp"):
            await (self._release(job, workload) if suspended else self._stop(job, job_messages.WORKLOAD_IS_DELETED))
        elif evicted is not None and evicted["status"] == "True" and status.get("admission"):
            await (self._release(job, workload) if suspended else self._stop(job, evicted["message"]))
        elif is_true(conditions, messages.ADMITTED) and status.get("admission"):
            if suspended:
                await self._start(job, workload)
            else:
                await self._reconcile_running(job, workload)
        elif not suspended:
            await self._stop(job, job_messages.NOT_ADMITTED)
        else:
            await self._update_pending(job, workload)

    async def _reconcile_running(self, job: Object, workload: Object) -> None:
        with suppress(PodSetsUnknown):
            if _exceeds_admission(self._integration, job, workload):
                await self._delete_workload(job, workload)
            elif not await self._update_priority(job, workload):
                await self._report_pods(job, workload)

    async def _stop(self, job: Object, why: str) -> None:
        await self._jobs.patch(job, self._integration.suspend(job))
        self._events.record(job, "Normal", job_messages.EVENT_STOPPED, why)

    async def _release(self, job: Object, workload: Object) -> None:
        """When all pods have stopped: restore the job, then release its quota."""
        if self._integration.active_pods(job):
            return  # the job's status will change
        if (job.get("status") or {}).get("startTime"):
            job = await self._jobs.patch(job, {"status": {"startTime": None}}, subresource="status")
        restored = self._integration.restore(job, workload["spec"]["podSets"])
        if restored is not None:
            await self._jobs.patch(job, restored)
        if workload["metadata"].get("deletionTimestamp"):
            await self._store.writer.remove_finalizer(workload)
        else:
            status = lifecycle.release_quota(workload, self._store.now())
            await self._store.writer.write_status(key_of(workload), workload, status)

    async def _delete_workload(self, job: Object, workload: Object) -> None:
        """The workload does not match the job any more: the job is stopped, and gets a new workload."""
        namespace, name = key_of(workload)
        await self._client.delete(WORKLOADS, name, namespace, uid=workload["metadata"]["uid"])
        self._events.record(
            job, "Normal", job_messages.EVENT_DELETED_WORKLOAD, job_messages.deleted_workload(namespace, name)
        )

    async def _start(self, job: Object, workload: Object) -> None:
        try:
            infos = pod_set_infos(workload, self._store.state.objects.flavors)
            await self._jobs.patch(job, self._integration.start(job, infos))
        except PodSetsUnknown:
            return
        except CannotStart as error:
            await self._fail_to_start(job, workload, str(error))
            return
        except StatusError as error:
            if error.status != 422:
                raise
            await self._fail_to_start(job, workload, str(error))
            return
        cluster_queue = workload["status"]["admission"]["clusterQueue"]
        self._events.record(job, "Normal", job_messages.EVENT_STARTED, job_messages.admitted_by(cluster_queue))

    async def _fail_to_start(self, job: Object, workload: Object, why: str) -> None:
        status = lifecycle.finish(workload, messages.REASON_FAILED_TO_START, why, self._store.now())
        await self._store.writer.write_status(key_of(workload), workload, status)
        self._events.record(job, "Warning", messages.REASON_FAILED_TO_START, why)

    async def _report_pods(self, job: Object, workload: Object) -> None:
        """Write into the workload which pods of the running job are ready, and which are not needed any more."""
        status = lifecycle.set_pods_ready(workload, self._integration.pods_ready(job), self._store.now())
        reported = workload if status is None else {**workload, "status": status}
        status = lifecycle.set_reclaimable_pods(reported, self._integration.reclaimable_pods(job)) or status
        if status is not None:
            await self._store.writer.write_status(key_of(workload), workload, status)

    async def _update_priority(self, job: Object, workload: Object) -> bool:
        """A running job may change its WorkloadPriorityClass. A change of its workload comes back."""
        known = (workload["spec"].get("priorityClassRef") or {}).get("name")
        if class_name_of(job) in ("", known):
            return False
        try:
            fields = self._composer.priority(job).fields()
        except PriorityClassNotFound as error:
            self._events.record(job, "Warning", job_messages.EVENT_PRIORITY_CLASS_NOT_FOUND, str(error), once=True)
            return False
        namespace, name = key_of(workload)
        await self._client.patch(WORKLOADS, name, {"spec": fields}, namespace)
        message = job_messages.updated_workload(namespace, name)
        self._events.record(job, "Normal", job_messages.EVENT_UPDATED_WORKLOAD, message)
        return True

    async def _update_pending(self, job: Object, workload: Object) -> None:
        """Report why a job is pending, and let its workload follow changes of its size, queue and priority."""
        why = self._pending_events.next_event(workload, self._store.pending_cause(key_of(workload)))
        if why is not None:
            self._events.record(job, "Warning", *why, once=True)
        try:
            spec = self._composer.compose(job)["spec"]
        except PodSetsUnknown:
            return
        except YardError as error:
            self._events.record(job, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error))
            return
        if admission_gates(job) != admission_gates(workload):
            await self._update_gates(job, workload)
            return  # it comes back as a change
        current = workload["spec"]
        has_same_pods = intern_pod_sets(spec["podSets"]) is intern_pod_sets(current["podSets"])
        if has_same_pods and all(spec.get(field) == current.get(field) for field in _FOLLOWED_FIELDS):
            return
        changed = {**workload, "spec": {**spec, "active": current.get("active", True)}}
        await self._client.update(WORKLOADS, changed)
        self._events.record(
            job, "Normal", job_messages.EVENT_UPDATED_WORKLOAD, job_messages.updated_workload(*key_of(workload))
        )

    async def _update_gates(self, job: Object, workload: Object) -> None:
        """A gate that was removed from a job is removed from its workload."""
        namespace, name = key_of(workload)
        patch = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: admission_gates(job) or None}}}
        await self._client.patch(WORKLOADS, name, patch, namespace)


def _exceeds_admission(integration: JobIntegration, job: Object, workload: Object) -> bool:
    """Whether a running job has more pods than were admitted. Elastic jobs get another workload for them."""
    if slices.is_elastic(job):
        return False
    assignments = workload["status"]["admission"]["podSetAssignments"]
    admitted = {assignment["name"]: assignment.get("count", 0) for assignment in assignments}
    return any(pod_set["count"] > admitted.get(pod_set["name"], 0) for pod_set in integration.pod_sets(job))
