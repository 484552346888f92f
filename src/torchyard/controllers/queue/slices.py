"""Elastic batch Jobs: a workload slice for each size, and gates on the pods that have no quota yet."""

from __future__ import annotations

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.composer import WorkloadComposer
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.writer import RETRY_SOON
from torchyard.core.queue import lifecycle, slices
from torchyard.core.queue.integrations import BatchJobIntegration, queue_name_of
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory


class SliceReconciler:
    """Works beside the `JobReconciler`, which starts, stops and finishes elastic jobs, too."""

    def __init__(self, store: QueueStore, informers: InformerFactory, recorder: EventRecorder) -> None:
        self._store, self._client, self._recorder = store, store.client, recorder
        self._integration = BatchJobIntegration()
        self._jobs = informers.for_resource(JOBS)
        self._pods = informers.for_resource(PODS, indexes={"owner": by_owner})
        self._composer = WorkloadComposer(informers, self._integration, JOBS)
        sources: list[Informer] = [self._jobs, self._pods, *self._composer.priorities.informers, *store.informers]
        self._controller = Controller("kueue-slices", self._reconcile, sources)
        self._jobs.on_change(lambda _change, job, _before: self._enqueue(job))
        self._pods.on_change(self._pod_changed)
        store.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _enqueue(self, job: Object) -> None:
        if slices.is_elastic(job) and queue_name_of(job):
            self._controller.queue.add(key_of(job))

    def _pod_changed(self, _change: str, pod: Object, _before: Object | None) -> None:
        for owner in pod["metadata"].get("ownerReferences") or ():
            job = self._jobs.get(pod["metadata"]["namespace"], owner["name"]) if owner["kind"] == "Job" else None
            if job is not None:
                self._enqueue(job)

    def _workload_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        if slices.is_elastic(obj):
            for owner in obj["metadata"].get("ownerReferences") or ():
                self._controller.queue.add((obj["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None or not slices.is_elastic(job) or self._integration.result(job) is not None:
            return None
        workloads = [
            workload
            for workload in self._store.workloads_of_job(self._integration.kind, key)
            if job["metadata"]["uid"] in by_owner(workload) and not has_true_condition(workload, messages.FINISHED)
        ]
        if any(self._store.writer.is_writing(key_of(workload)) for workload in workloads):
            return RETRY_SOON
        if self._integration.is_suspended(job):
            for workload in workloads:
                if workload is not slices.current_slice(workloads):
                    await self._delete(workload)
            return None
        plan = slices.plan_slices(workloads, self._integration.count(job))
        for workload in plan.replaced:
            await self._finish_replaced(workload, slices.current_slice(workloads))
        for workload in plan.obsolete:
            await self._delete(workload)
        if plan.shrunk is not None:
            await self._client.update(WORKLOADS, plan.shrunk)
        elif plan.grows:
            await self._grow(job, slices.current_slice(workloads))
        await self._ungate_pods(job, workloads)
        return None

    async def _finish_replaced(self, workload: Object, replacement: Object) -> None:
        job_uid = (replacement["metadata"].get("labels") or {}).get(names.JOB_UID, "")
        message = messages.slice_replaced(uid=replacement["metadata"]["uid"], job_uid=job_uid)
        status = lifecycle.finish(workload, messages.REASON_SLICE_REPLACED, message, self._store.now())
        await self._store.writer.write_status(key_of(workload), workload, status)

    async def _delete(self, workload: Object) -> None:
        await self._store.writer.remove_finalizer(workload)
        namespace, name = key_of(workload)
        try:
            await self._client.delete(WORKLOADS, name, namespace, uid=workload["metadata"]["uid"])
        except StatusError as error:
            if error.status != 404:
                raise

    async def _grow(self, job: Object, current: Object) -> None:
        workload = self._composer.compose(job, replaces=current)
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason != "AlreadyExists":  # the informer has not seen it yet
                raise
        else:
            reference = {**job, "apiVersion": JOBS.api_version, "kind": self._integration.kind}
            message = job_messages.created_workload(*key_of(workload))
            self._recorder.event(reference, "Normal", job_messages.EVENT_CREATED_WORKLOAD, message)

    async def _ungate_pods(self, job: Object, workloads: list[Object]) -> None:
        """Let as many pods be scheduled as are admitted."""
        current = slices.current_slice(workloads) if workloads else None
        if current is None or not slices.is_admitted(current):
            return
        pods = self._pods.by("owner", job["metadata"]["uid"])
        for pod in slices.pods_to_ungate(pods, slices.admitted_count(current)):
            await self._client.update(PODS, slices.ungate(pod))
