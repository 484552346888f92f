"""Jobs with a queue: a workload for each, and the job started, stopped and finished as its workload is.

Knows no kind of job: `core.queue.jobs` has an adapter for each.
"""

from __future__ import annotations

from typing import Any

from torchyard.api.conditions import find, is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.queue import names, words
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.infos import infos_of
from torchyard.controllers.queue.refs import POD_PRIORITY_CLASSES, PRIORITY_CLASSES, WORKLOADS
from torchyard.controllers.queue.state import State
from torchyard.core.queue import lifecycle
from torchyard.core.queue.jobs import Adapter, CannotStart, queue_of
from torchyard.core.queue.shapes import shape_of
from torchyard.kube.client import Ref
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informers import Informers
from torchyard.kube.recorder import Recorder

Object = dict[str, Any]
_NOT_ADMITTED = "Not admitted by cluster queue"


class JobController:
    def __init__(self, state: State, informers: Informers, adapter: Adapter, ref: Ref) -> None:
        self._state, self._adapter, self._ref = state, adapter, ref
        self._client = state.client
        self._jobs = informers.of(ref)
        self._classes = informers.of(PRIORITY_CLASSES)
        self._pod_classes = informers.of(POD_PRIORITY_CLASSES)
        self.recorder = Recorder(state.client, words.framework(adapter.framework), clock=state.clock)
        sources: list[Informer] = [self._jobs, self._classes, self._pod_classes, *state.informers]
        self._controller = Controller(words.framework(adapter.framework), self._reconcile, sources)
        self._written: dict[Key, Object] = {}
        self._jobs.on_change(lambda _change, job, _before: self._look(job["metadata"]["namespace"], job))
        state.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _look(self, namespace: str, job: Object) -> None:
        if queue_of(job):
            self._controller.queue.add((namespace, job["metadata"]["name"]))

    def _workload_changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        for one in obj["metadata"].get("ownerReferences") or ():
            if one.get("controller") and one["kind"] == self._adapter.kind:
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
        if job is None or not queue_of(job) or job["metadata"].get("deletionTimestamp"):
            return None
        owned = self._state.workloads.by("owner", job["metadata"]["uid"])
        workload = min(owned, key=lambda one: str(one["metadata"]["name"])) if owned else None
        if workload is not None:
            known = self._state.current((key[0], workload["metadata"]["name"]))
            if self._state.is_writing((key[0], workload["metadata"]["name"])):
                return None
            workload = known or workload
        ended = self._adapter.ended(job)
        if workload is None:
            if ended is None:
                await self._compose(job)
            return None
        if is_true((workload.get("status") or {}).get("conditions") or (), words.FINISHED):
            return None
        if ended is not None:
            await self._finish(job, workload, *ended)
        else:
            await self._keep(job, workload)
        return None

    async def _compose(self, job: Object) -> None:
        """A workload for a job that has none; one that runs without quota is stopped first."""
        if not self._adapter.is_suspended(job):
            await self._stop(job, _NOT_ADMITTED)
            return
        metadata = job["metadata"]
        try:
            priority = self._priority(job)
            workload = self._workload(job, priority)
        except YardError as error:
            reason = words.NO_PRIORITY_CLASS if names.PRIORITY in (metadata.get("labels") or {}) else words.NOT_COMPOSED
            self._tell(job, "Warning", reason, str(error))
            return
        name = workload["metadata"]["name"]
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return  # the cache is behind, and will bring it
            if error.status in (400, 422):
                self._tell(job, "Warning", words.NOT_COMPOSED, str(error))
                return
            raise
        self._tell(job, "Normal", words.CREATED, words.created(metadata["namespace"], name))

    def _workload(self, job: Object, priority: tuple[int, Object | None]) -> Object:
        metadata, adapter = job["metadata"], self._adapter
        name = names.workload_name(adapter.kind, adapter.group, metadata["name"], metadata["uid"])
        owner = {
            "apiVersion": self._ref.api_version,
            "kind": adapter.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        spec: Object = {
            "podSets": adapter.pod_sets(job),
            "queueName": queue_of(job),
            "priority": priority[0],
            "active": True,
        }
        if priority[1] is not None:
            spec["priorityClassRef"] = priority[1]
        limit = (metadata.get("labels") or {}).get(names.MAX_SECONDS)
        if limit is not None:
            if not limit.isdigit() or int(limit) < 1:
                raise YardError(f"the label {names.MAX_SECONDS} is {limit!r}", hint="write a number of seconds")
            spec["maximumExecutionTimeSeconds"] = int(limit)
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {names.JOB_UID: metadata["uid"]},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }

    def _priority(self, job: Object) -> tuple[int, Object | None]:
        """The queue's priority class, else the pods', else none."""
        name = (job["metadata"].get("labels") or {}).get(names.PRIORITY)
        if name:
            found = self._classes.get("", name)
            if found is None:
                raise YardError(words.no_such_class(name))
            return found["value"], {"group": names.GROUP, "kind": names.PRIORITY_CLASS.kind, "name": name}
        policy = ((job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}).get("priorityClass")
        templates = (one["template"].get("spec") or {} for one in self._adapter.pod_sets(job))
        chosen = policy or next((one["priorityClassName"] for one in templates if one.get("priorityClassName")), "")
        found = self._pod_classes.get("", chosen) if chosen else None
        if found is None:
            return 0, None
        return found["value"], {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": chosen}

    async def _finish(self, job: Object, workload: Object, succeeded: bool, message: str) -> None:
        metadata = workload["metadata"]
        reason = words.SUCCEEDED if succeeded else words.FAILED
        status = lifecycle.finish(workload, reason, message, self._state.now())
        if await self._state.write((metadata["namespace"], metadata["name"]), workload, status) is None:
            raise StatusError(409, "Conflict", "the workload changed meanwhile")
        self._tell(job, "Normal", words.JOB_FINISHED, words.finished(metadata["namespace"], metadata["name"]))

    async def _keep(self, job: Object, workload: Object) -> None:
        """A job and its workload that go on: make the one what the other says."""
        status = workload.get("status") or {}
        conditions = status.get("conditions") or ()
        evicted = find(conditions, words.EVICTED)
        suspended = self._adapter.is_suspended(job)
        if evicted is not None and evicted["status"] == "True" and status.get("admission"):
            if not suspended:
                await self._stop(job, evicted["message"])
            else:
                await self._release(job, workload)
        elif is_true(conditions, words.ADMITTED) and status.get("admission"):
            await (self._start(job, workload) if suspended else self._report(job, workload))
        elif not suspended:
            await self._stop(job, _NOT_ADMITTED)
        else:
            await self._follow(job, workload)

    async def _stop(self, job: Object, why: str) -> None:
        await self._patch(job, self._adapter.suspend(job))
        self._tell(job, "Normal", words.JOB_STOPPED, why)

    async def _release(self, job: Object, workload: Object) -> None:
        """Nothing runs any more: the job becomes what it was, and then the quota is free."""
        if self._adapter.active(job):
            return  # its status will change
        if (job.get("status") or {}).get("startTime"):
            job = await self._patch(job, {"status": {"startTime": None}}, subresource="status")
        restored = self._adapter.restore(job, workload["spec"]["podSets"])
        if restored is not None:
            await self._patch(job, restored)
        metadata = workload["metadata"]
        status = lifecycle.release(workload, self._state.now())
        await self._state.write((metadata["namespace"], metadata["name"]), workload, status)

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
        self._tell(job, "Normal", words.JOB_STARTED, words.started(queue))

    async def _give_up(self, job: Object, workload: Object, why: str) -> None:
        metadata = workload["metadata"]
        status = lifecycle.finish(workload, words.NOT_STARTED, why, self._state.now())
        await self._state.write((metadata["namespace"], metadata["name"]), workload, status)
        self._tell(job, "Warning", words.NOT_STARTED, why)

    async def _report(self, job: Object, workload: Object) -> None:
        """What the running job says of its pods."""
        metadata = workload["metadata"]
        now = self._state.now()
        status = lifecycle.pods_ready(workload, self._adapter.is_ready(job), now)
        spared = [{"name": name, "count": count} for name, count in self._adapter.reclaimable(job).items()]
        known = (workload["status"].get("reclaimablePods")) or []
        if spared and spared != known:
            status = {**(status or workload["status"]), "reclaimablePods": spared}
        if status is not None:
            await self._state.write((metadata["namespace"], metadata["name"]), workload, status)

    async def _follow(self, job: Object, workload: Object) -> None:
        """A job that waits may still change its size, its queue and its priority."""
        try:
            wanted = self._workload(job, self._priority(job))
        except YardError as error:
            self._tell(job, "Warning", words.NOT_COMPOSED, str(error))
            return
        spec, before = wanted["spec"], workload["spec"]
        same = shape_of(spec["podSets"]) is shape_of(before["podSets"])
        fields = ("queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds")
        if same and all(spec.get(name) == before.get(name) for name in fields):
            return
        changed = {**workload, "spec": {**spec, "active": before.get("active", True)}}
        await self._client.update(WORKLOADS, changed)
        metadata = workload["metadata"]
        self._tell(job, "Normal", words.UPDATED, words.updated(metadata["namespace"], metadata["name"]))

    def _tell(self, job: Object, kind: Any, reason: str, message: str) -> None:
        about = {**job, "apiVersion": self._ref.api_version, "kind": self._adapter.kind}
        self.recorder.event(about, kind, reason, message)
