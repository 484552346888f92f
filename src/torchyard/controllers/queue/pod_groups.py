"""Plain pods that are queued: gated until their whole group is admitted, deleted when it is evicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torchyard.api.conditions import is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.api.queue import job_messages, messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.composer import time_limit
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.pending_events import PendingEvents
from torchyard.controllers.queue.pod_set_infos import pod_set_infos
from torchyard.controllers.queue.priorities import Priorities, PriorityClassNotFound
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.writer import RETRY_SOON
from torchyard.core.queue import lifecycle, pod_groups
from torchyard.kube.informer import Informer, Key, key_of
from torchyard.kube.informer_factory import InformerFactory

_GROUP_INDEX = "queue-group"


class PodGroupReconciler:
    def __init__(self, store: QueueStore, informers: InformerFactory) -> None:
        self._store, self._client = store, store.client
        self._pods = informers.for_resource(
            PODS, labels=f"{names.MANAGED}=true", indexes={_GROUP_INDEX: lambda pod: ("/".join(_workload_key(pod)),)}
        )
        self._priorities = Priorities(informers)
        self._pending_events = PendingEvents()
        name = job_messages.job_component("pod")
        self.recorder = store.new_recorder(name)
        sources: list[Informer] = [self._pods, *self._priorities.informers, *store.informers]
        self._controller = Controller(name, self._reconcile, sources)
        self._pods.on_change(lambda _change, pod, _before: self._controller.queue.add(_workload_key(pod)))
        self._priorities.on_change(self._pods, self._controller.queue.add, _workload_key)
        store.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if any(owner["kind"] == "Pod" for owner in obj["metadata"].get("ownerReferences") or ()):
            self._pending_events.workload_changed(change, obj)
            self._controller.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        pods = self._pods.by(_GROUP_INDEX, "/".join(key))
        alive = [pod for pod in pods if not has_ended(pod)]
        workload = self._store.current(key)
        if workload is None:
            if alive:
                await self._create_workload(key, pods)
            return None
        if any(owner["kind"] != "Pod" for owner in workload["metadata"].get("ownerReferences") or ()):
            message = job_messages.workload_of_another_job(*key)
            self._record(alive, "Warning", job_messages.EVENT_COMPOSE_ERROR, message, once=True)
            return None
        if self._store.writer.is_writing(key):
            return RETRY_SOON
        status = workload.get("status") or {}
        conditions = status.get("conditions") or ()
        if is_true(conditions, messages.FINISHED):
            await self._store.writer.remove_finalizer(workload)
        elif workload["metadata"].get("deletionTimestamp"):
            await self._delete_pods(alive)
            if not alive:
                await self._store.writer.remove_finalizer(workload)
        elif pods and pod_groups.is_finished(pods, _size(workload)):
            await self._finish(key, workload, pods)
        elif is_true(conditions, messages.EVICTED) and status.get("admission"):
            await self._evict(key, workload, alive)
        else:
            gated = pod_groups.gated_pods(pods, workload)
            await self._delete_excess(gated.excess)
            if is_true(conditions, messages.ADMITTED) and status.get("admission"):
                await self._run(workload, pods, gated.startable)
            else:
                await self._update_pending(workload, alive)
        return None

    async def _create_workload(self, key: Key, pods: list[Object]) -> None:
        workload = self._compose(key, pods)
        if workload is None:
            return
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            if error.status not in (400, 422):
                raise
            self._record(pods, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error), once=True)
        else:
            self._record(pods, "Normal", job_messages.EVENT_CREATED_WORKLOAD, job_messages.created_workload(*key))

    def _compose(self, key: Key, pods: list[Object]) -> Object | None:
        """The workload of a group; None, with an event that says why, if there cannot be one yet."""
        try:
            pod_sets = pod_groups.pod_sets(pods, pod_groups.group_size(pods))
        except YardError as error:
            self._record(pods, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error), once=True)
            return None
        if pod_sets is None:
            message = job_messages.pod_group_too_small(key[1])
            self._record(pods, "Warning", job_messages.EVENT_COMPOSE_ERROR, message, once=True)
            return None
        fields = self._labelled_fields(pods)
        if fields is None:
            return None
        owners = [pod_groups.owner_of(pod) for pod in pods if not has_ended(pod)]
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD.kind,
            "metadata": {
                "name": key[1],
                "namespace": key[0],
                "finalizers": [names.IN_USE],
                "ownerReferences": owners,
            },
            "spec": {"podSets": pod_sets, "active": True, **fields},
        }

    def _labelled_fields(self, pods: list[Object]) -> Object | None:
        """The fields of the workload that follow the labels of its pods. None, with an event, if they are wrong."""
        first = pods[0]
        try:
            queue = pod_groups.queue_of(pods)
            priority = self._priorities.of(first, first["spec"].get("priorityClassName") or "")
            limit = time_limit(first)
        except PriorityClassNotFound as error:
            self._record(pods, "Warning", job_messages.EVENT_PRIORITY_CLASS_NOT_FOUND, str(error), once=True)
            return None
        except YardError as error:
            self._record(pods, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error), once=True)
            return None
        if priority.class_ref is None:
            priority = priority._replace(value=first["spec"].get("priority") or 0)
        return {"queueName": queue, **priority.fields(), **limit}

    async def _update_pending(self, workload: Object, pods: list[Object]) -> None:
        """Say why the pods wait, and let their workload follow a change of their labels."""
        if why := self._pending_events.next_event(workload, self._store.pending_cause(key_of(workload))):
            self._record(pods, "Warning", *why, once=True)
        fields = self._labelled_fields(pods) if pods else None
        changed = {name: value for name, value in (fields or {}).items() if workload["spec"].get(name) != value}
        if changed:
            namespace, name = key_of(workload)
            await self._client.patch(WORKLOADS, name, {"spec": changed}, namespace)
            message = job_messages.updated_workload(namespace, name)
            self._record(pods, "Normal", job_messages.EVENT_UPDATED_WORKLOAD, message)

    async def _run(self, workload: Object, pods: list[Object], startable: list[Object]) -> None:
        owners = pod_groups.missing_owners(workload, pods)
        if owners:
            # First, so that the workload does not end with the pods that these replace.
            owners = [*(workload["metadata"].get("ownerReferences") or ()), *owners]
            metadata = {"resourceVersion": workload["metadata"]["resourceVersion"], "ownerReferences": owners}
            namespace, name = key_of(workload)
            await self._client.patch(WORKLOADS, name, {"metadata": metadata}, namespace)
            return  # it comes back as a change
        infos = pod_set_infos(workload, self._store.state.objects.flavors)
        message = job_messages.admitted_by(workload["status"]["admission"]["clusterQueue"])
        for pod in startable:
            await self._client.update(PODS, pod_groups.start_pod(pod, infos))
            self._record([pod], "Normal", job_messages.EVENT_STARTED, message)
        await self._report(workload, pods)

    async def _report(self, workload: Object, pods: list[Object]) -> None:
        """Write into the workload which pods are ready, not needed any more, or need to be replaced."""
        size, now, reported = _size(workload), self._store.now(), workload
        changes: list[Callable[[Object], Object | None]] = [
            lambda obj: lifecycle.set_pods_ready(obj, pod_groups.are_ready(pods, size), now),
            lambda obj: lifecycle.set_reclaimable_pods(obj, pod_groups.reclaimable_pods(pods)),
            lambda obj: lifecycle.set_waiting_for_replacement(obj, pod_groups.needs_replacement(pods, size), now),
        ]
        for change in changes:
            status = change(reported)
            if status is not None:
                reported = {**reported, "status": status}
        if reported is not workload:
            await self._store.writer.write_status(key_of(workload), workload, reported["status"])

    async def _delete_excess(self, pods: list[Object]) -> None:
        await self._delete_pods(pods)
        self._record(pods, "Normal", job_messages.EVENT_EXCESS_POD_DELETED, job_messages.EXCESS_POD_DELETED)

    async def _evict(self, key: Key, workload: Object, pods: list[Object]) -> None:
        """Pods cannot be suspended, only deleted. Whatever created them may create them again."""
        await self._delete_pods(pods)
        if not pods:
            status = lifecycle.release_quota(workload, self._store.now())
            await self._store.writer.write_status(key, workload, status)

    async def _delete_pods(self, pods: list[Object]) -> None:
        for pod in pods:
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self._client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    async def _finish(self, key: Key, workload: Object, pods: list[Object]) -> None:
        succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        # As in Kueue, a group that ends has succeeded, whatever its message counts.
        has_failed = not succeeded and not pod_groups.is_group(pods[0])
        reason = messages.REASON_FAILED if has_failed else messages.REASON_SUCCEEDED
        message = job_messages.pods_succeeded(succeeded, _size(workload))
        status = lifecycle.finish(workload, reason, message, self._store.now())
        await self._store.writer.write_status(key, workload, status)
        self._record(pods, "Normal", job_messages.EVENT_FINISHED_WORKLOAD, job_messages.workload_finished(*key))

    def _record(
        self, pods: list[Object], type: Literal["Normal", "Warning"], reason: str, message: str, *, once: bool = False
    ) -> None:
        for pod in pods:
            self.recorder.event({**pod, "apiVersion": "v1", "kind": "Pod"}, type, reason, message, once=once)


def _workload_key(pod: Object) -> Key:
    return pod["metadata"]["namespace"], pod_groups.workload_name_of(pod)


def _size(workload: Object) -> int:
    return sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
