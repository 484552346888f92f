"""Batch Jobs that change their size while they run: a workload per size, gates on the pods that have no quota yet."""

from __future__ import annotations

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.composer import Composer
from torchyard.controllers.queue.refs import WORKLOADS
from torchyard.controllers.queue.stores import SOON, State
from torchyard.core.queue import lifecycle, slices
from torchyard.core.queue.integrations import BatchJob, queue_of
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory


class SliceController:
    """Beside the controller of all jobs, which starts, stops and ends these too."""

    def __init__(self, state: State, informers: InformerFactory, recorder: EventRecorder) -> None:
        self._state, self._client, self._recorder = state, state.client, recorder
        self._adapter = BatchJob()
        self._jobs = informers.for_resource(JOBS)
        self._pods = informers.for_resource(PODS, indexes={"owner": by_owner})
        self._composer = Composer(informers, self._adapter, JOBS)
        sources: list[Informer] = [self._jobs, self._pods, *self._composer.informers, *state.informers]
        self._controller = Controller("kueue-slices", self._reconcile, sources)
        self._jobs.on_change(lambda _change, job, _before: self._look(job))
        self._pods.on_change(self._pod_changed)
        state.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _look(self, job: Object) -> None:
        if slices.is_elastic(job) and queue_of(job):
            self._controller.queue.add(key_of(job))

    def _pod_changed(self, _change: str, pod: Object, _before: Object | None) -> None:
        for one in pod["metadata"].get("ownerReferences") or ():
            job = self._jobs.get(pod["metadata"]["namespace"], one["name"]) if one["kind"] == "Job" else None
            if job is not None:
                self._look(job)

    def _workload_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        if slices.is_elastic(obj):
            for one in obj["metadata"].get("ownerReferences") or ():
                self._controller.queue.add((obj["metadata"]["namespace"], one["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None or not slices.is_elastic(job) or self._adapter.ended(job) is not None:
            return None
        workloads = [
            one
            for one in self._state.of_job(self._adapter.kind, key)
            if job["metadata"]["uid"] in by_owner(one) and not has_true_condition(one, messages.FINISHED)
        ]
        if any(self._state.is_writing(key_of(one)) for one in workloads):
            return SOON
        if self._adapter.is_suspended(job):
            for one in workloads:
                if one is not slices.current(workloads):
                    await self._delete(one)
            return None
        plan = slices.plan(workloads, self._adapter.count(job))
        for one in plan.replaced:
            await self._retire(one, slices.current(workloads))
        for one in plan.unwanted:
            await self._delete(one)
        if plan.shrunk is not None:
            await self._resize(plan.shrunk)
        elif plan.grows:
            await self._grow(job, slices.current(workloads))
        await self._open(job, workloads)
        return None

    async def _retire(self, workload: Object, by: Object) -> None:
        status = lifecycle.finish(workload, messages.REPLACED, messages.replaced(*key_of(by)), self._state.now())
        await self._state.write(key_of(workload), workload, status)

    async def _delete(self, workload: Object) -> None:
        await self._state.let_go(workload)
        namespace, name = key_of(workload)
        try:
            await self._client.delete(WORKLOADS, name, namespace, uid=workload["metadata"]["uid"])
        except StatusError as error:
            if error.status != 404:
                raise

    async def _resize(self, workload: Object) -> None:
        written = await self._client.update(WORKLOADS, workload)
        await self._state.write(key_of(workload), written, workload["status"])

    async def _grow(self, job: Object, before: Object) -> None:
        workload = self._composer.workload(job, replaces=before)
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason != "AlreadyExists":  # the cache is behind, and will bring it
                raise
        else:
            about = {**job, "apiVersion": JOBS.api_version, "kind": self._adapter.kind}
            self._recorder.event(about, "Normal", messages.CREATED, messages.created(*key_of(workload)))

    async def _open(self, job: Object, workloads: list[Object]) -> None:
        """Let as many pods be scheduled as were admitted."""
        now = slices.current(workloads) if workloads else None
        if now is None or not slices.is_admitted(now):
            return
        admitted = now["status"]["admission"]["podSetAssignments"][0].get("count", 0)
        for pod in slices.to_open(self._pods.by("owner", job["metadata"]["uid"]), admitted):
            await self._client.update(PODS, slices.opened(pod))
