"""Jobs with a queue: a workload for each, and the job started, stopped and finished as its workload is.

Knows no kind of job: `core.queue.jobs` has an adapter for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.api.conditions import find, has_true_condition, is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.composer import Composer, NoSuchClass
from torchyard.controllers.queue.pending_events import Reasons
from torchyard.controllers.queue.pod_set_infos import infos_of
from torchyard.controllers.queue.refs import WORKLOADS
from torchyard.controllers.queue.stores import SOON, Workloads
from torchyard.core.queue import lifecycle, slices
from torchyard.core.queue.integrations import Adapter, CannotStart, queue_of
from torchyard.core.queue.requirements import shape_of
from torchyard.core.queue.workload_info import seconds
from torchyard.kube.informer import Informer, Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory

_NOT_ADMITTED = "Not admitted by cluster queue"


class JobController:
    def __init__(
        self,
        state: Workloads,
        informers: InformerFactory,
        adapter: Adapter,
        ref: GroupVersionResource,
        *,
        composed: Callable[[str, float], None] = lambda _kind, _seconds: None,
    ) -> None:
        """`composed` is told of each workload that is made: for what kind, and how long after the job."""
        self._state, self._adapter, self._ref = state, adapter, ref
        self._client, self._composed = state.client, composed
        self._jobs = informers.for_resource(ref)
        self._composer = Composer(informers, adapter, ref)
        self.recorder = state.recorder(messages.framework(adapter.framework))
        sources: list[Informer] = [self._jobs, *self._composer.informers, *state.informers]
        self._controller = Controller(messages.framework(adapter.framework), self._reconcile, sources)
        self._written: dict[Key, Object] = {}
        self._reasons = Reasons()
        self._jobs.on_change(lambda _change, job, _before: self._look(job["metadata"]["namespace"], job))
        state.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _look(self, namespace: str, job: Object) -> None:
        if queue_of(job):
            self._controller.queue.add((namespace, job["metadata"]["name"]))

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        for one in obj["metadata"].get("ownerReferences") or ():
            if one.get("controller") and one["kind"] == self._adapter.kind:
                self._reasons.seen(change, obj)
                self._controller.queue.add((obj["metadata"]["namespace"], one["name"]))

    def _current(self, key: Key) -> Object | None:
        """The job as the cache has it, or as it was written here and the cache has yet to see."""
        job, written = self._jobs.get(*key), self._written.get(key)
        if job is None or written is None or self._jobs.has_seen(written):
            self._written.pop(key, None)
            return job
        return written

    async def _patch(self, job: Object, patch: Object, *, subresource: str = "") -> Object:
        metadata = job["metadata"]
        pinned = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **pinned}}
        written = await self._client.patch(
            self._ref, metadata["name"], patch, metadata["namespace"], subresource=subresource
        )
        self._written[metadata["namespace"], metadata["name"]] = written
        return written

    async def _reconcile(self, key: Key) -> float | None:
        job = self._current(key)
        uid = "" if job is None or job["metadata"].get("deletionTimestamp") else job["metadata"]["uid"]
        found = self._state.of_job(self._adapter.kind, key)
        if any(self._state.is_writing(key_of(one)) for one in found):
            return SOON  # what is written comes back as a change, but not what is refused
        mine = [one for one in found if uid in by_owner(one)]
        owned = [one for one in mine if not has_true_condition(one, messages.FINISHED)]
        for one in found:
            if one not in owned:
                await self._state.let_go(one)
        if job is None or not uid or not queue_of(job):
            return None
        ended = self._adapter.ended(job)
        if ended is not None:
            for one in owned:
                await self._finish(job, one, *ended)
        elif owned:
            await self._keep(job, slices.current(owned))
        elif not mine:
            await self._compose(job)
        return None

    async def _compose(self, job: Object) -> None:
        """A workload for a job that has none; one that runs without quota is stopped first."""
        if not self._adapter.is_suspended(job):
            await self._stop(job, _NOT_ADMITTED)
            return
        metadata = job["metadata"]
        try:
            workload = self._composer.workload(job)
        except YardError as error:
            reason = messages.NO_PRIORITY_CLASS if isinstance(error, NoSuchClass) else messages.NOT_COMPOSED
            self._tell(job, "Warning", reason, str(error))
            return
        name = workload["metadata"]["name"]
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return  # the cache is behind, and will bring it
            if error.status in (400, 422):
                self._tell(job, "Warning", messages.NOT_COMPOSED, str(error))
                return
            raise
        self._composed(self._adapter.kind, max(0.0, self._state.now() - seconds(metadata["creationTimestamp"])))
        self._tell(job, "Normal", messages.CREATED, messages.created(metadata["namespace"], name))

    async def _finish(self, job: Object, workload: Object, succeeded: bool, message: str) -> None:
        reason = messages.SUCCEEDED if succeeded else messages.FAILED
        status = lifecycle.finish(workload, reason, message, self._state.now())
        if await self._state.write(key_of(workload), workload, status) is None:
            raise StatusError(409, "Conflict", "the workload changed meanwhile")
        self._tell(job, "Normal", messages.JOB_FINISHED, messages.finished(*key_of(workload)))

    async def _keep(self, job: Object, workload: Object) -> None:
        """A job and its workload that go on: make the one what the other says."""
        status = workload.get("status") or {}
        conditions = status.get("conditions") or ()
        evicted = find(conditions, messages.EVICTED)
        suspended = self._adapter.is_suspended(job)
        if workload["metadata"].get("deletionTimestamp"):
            await (self._release(job, workload) if suspended else self._stop(job, messages.IS_DELETED))
        elif evicted is not None and evicted["status"] == "True" and status.get("admission"):
            if not suspended:
                await self._stop(job, evicted["message"])
            else:
                await self._release(job, workload)
        elif is_true(conditions, messages.ADMITTED) and status.get("admission"):
            if suspended:
                await self._start(job, workload)
            elif self._has_outgrown(job, workload):
                await self._delete(job, workload)
            else:
                await self._report(job, workload)
        elif not suspended:
            await self._stop(job, _NOT_ADMITTED)
        else:
            await self._follow(job, workload)

    async def _stop(self, job: Object, why: str) -> None:
        await self._patch(job, self._adapter.suspend(job))
        self._tell(job, "Normal", messages.JOB_STOPPED, why)

    async def _release(self, job: Object, workload: Object) -> None:
        """Nothing runs any more: the job becomes what it was, and then the quota is free."""
        if self._adapter.active(job):
            return  # its status will change
        if (job.get("status") or {}).get("startTime"):
            job = await self._patch(job, {"status": {"startTime": None}}, subresource="status")
        restored = self._adapter.restore(job, workload["spec"]["podSets"])
        if restored is not None:
            await self._patch(job, restored)
        if workload["metadata"].get("deletionTimestamp"):
            await self._state.let_go(workload)
        else:
            await self._state.write(key_of(workload), workload, lifecycle.release(workload, self._state.now()))

    def _has_outgrown(self, job: Object, workload: Object) -> bool:
        """Whether a running job wants more pods than were admitted; one that is elastic asks for them properly."""
        if slices.is_elastic(job):
            return False
        admitted = {one["name"]: one.get("count", 0) for one in workload["status"]["admission"]["podSetAssignments"]}
        return any(one["count"] > admitted.get(one["name"], 0) for one in self._adapter.pod_sets(job))

    async def _delete(self, job: Object, workload: Object) -> None:
        """It says no more what the job is: the job is stopped, and makes another."""
        namespace, name = key_of(workload)
        await self._client.delete(WORKLOADS, name, namespace, uid=workload["metadata"]["uid"])
        self._tell(job, "Normal", messages.DELETED, messages.deleted(namespace, name))

    async def _start(self, job: Object, workload: Object) -> None:
        try:
            infos = infos_of(workload, self._state.book.flavors)
            await self._patch(job, self._adapter.start(job, infos))
        except CannotStart as error:
            await self._give_up(job, workload, str(error))
            return
        except StatusError as error:
            if error.status != 422:
                raise
            await self._give_up(job, workload, str(error))
            return
        queue = workload["status"]["admission"]["clusterQueue"]
        self._tell(job, "Normal", messages.JOB_STARTED, messages.started(queue))

    async def _give_up(self, job: Object, workload: Object, why: str) -> None:
        status = lifecycle.finish(workload, messages.NOT_STARTED, why, self._state.now())
        await self._state.write(key_of(workload), workload, status)
        self._tell(job, "Warning", messages.NOT_STARTED, why)

    async def _report(self, job: Object, workload: Object) -> None:
        """What the running job says of its pods."""
        status = lifecycle.pods_ready(workload, self._adapter.is_ready(job), self._state.now())
        spared = [{"name": name, "count": count} for name, count in self._adapter.reclaimable(job).items()]
        known = (workload["status"].get("reclaimablePods")) or []
        if spared and spared != known:
            status = {**(status or workload["status"]), "reclaimablePods": spared}
        if status is not None:
            await self._state.write(key_of(workload), workload, status)

    async def _follow(self, job: Object, workload: Object) -> None:
        """A job that waits is told why, and may still change its size, its queue and its priority."""
        why = self._reasons.news(workload)
        if why is not None:
            self._tell(job, "Warning", *why, once=True)
        try:
            wanted = self._composer.workload(job)
        except YardError as error:
            self._tell(job, "Warning", messages.NOT_COMPOSED, str(error))
            return
        spec, before = wanted["spec"], workload["spec"]
        same = shape_of(spec["podSets"]) is shape_of(before["podSets"])
        fields = ("queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds")
        if same and all(spec.get(name) == before.get(name) for name in fields):
            return
        changed = {**workload, "spec": {**spec, "active": before.get("active", True)}}
        await self._client.update(WORKLOADS, changed)
        self._tell(job, "Normal", messages.UPDATED, messages.updated(*key_of(workload)))

    def _tell(self, job: Object, kind: Any, reason: str, message: str, *, once: bool = False) -> None:
        about = {**job, "apiVersion": self._ref.api_version, "kind": self._adapter.kind}
        self.recorder.event(about, kind, reason, message, once=once)
