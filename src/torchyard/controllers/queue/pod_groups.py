"""Plain pods that are queued: gated until their whole group is admitted, deleted when it is evicted."""

from __future__ import annotations

from typing import Literal

from torchyard.api.conditions import is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.pending_events import PendingEvents
from torchyard.controllers.queue.pod_set_infos import pod_set_infos
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
        self._pending_events = PendingEvents()
        name = job_messages.job_component("pod")
        self.recorder = store.new_recorder(name)
        sources: list[Informer] = [self._pods, *store.informers]
        self._controller = Controller(name, self._reconcile, sources)
        self._pods.on_change(lambda _change, pod, _before: self._controller.queue.add(_workload_key(pod)))
        store.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if any(owner["kind"] == "Pod" for owner in obj["metadata"].get("ownerReferences") or ()):
            self._pending_events.workload_changed(change, obj)
            self._controller.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        pods = self._pods.by(_GROUP_INDEX, "/".join(key))
        alive = [pod for pod in pods if not pod_groups.is_terminated(pod)]
        workload = self._store.current(key)
        if workload is None:
            if alive:
                await self._create_workload(key, pods)
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
        elif pods and not alive:
            await self._finish(key, workload, pods)
        elif is_true(conditions, messages.EVICTED) and status.get("admission"):
            await self._evict(key, workload, alive)
        elif is_true(conditions, messages.ADMITTED) and status.get("admission"):
            await self._start(workload, alive)
        elif why := self._pending_events.next_event(workload, self._store.pending_cause(key_of(workload))):
            self._record(alive, "Warning", *why, once=True)
        return None

    async def _create_workload(self, key: Key, pods: list[Object]) -> None:
        try:
            if len(pods) < pod_groups.group_size(pods):
                return  # not all pods of the group exist yet
        except YardError as error:
            self._record(pods, "Warning", job_messages.EVENT_COMPOSE_ERROR, str(error))
            return
        owners = [
            {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            for pod in pods
        ]
        workload = {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD.kind,
            "metadata": {
                "name": key[1],
                "namespace": key[0],
                "finalizers": [names.IN_USE],
                "ownerReferences": owners,
            },
            "spec": {
                "podSets": pod_groups.pod_sets(pods),
                "queueName": (pods[0]["metadata"].get("labels") or {}).get(names.QUEUE_NAME, ""),
                "priority": pods[0]["spec"].get("priority") or 0,
                "active": True,
            },
        }
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        else:
            self._record(pods, "Normal", job_messages.EVENT_CREATED_WORKLOAD, job_messages.created_workload(*key))

    async def _start(self, workload: Object, pods: list[Object]) -> None:
        infos = pod_set_infos(workload, self._store.state.objects.flavors)
        message = job_messages.admitted_by(workload["status"]["admission"]["clusterQueue"])
        for pod in pods:
            if pod_groups.is_gated(pod):
                await self._client.update(PODS, pod_groups.start_pod(pod, infos))
                self._record([pod], "Normal", job_messages.EVENT_STARTED, message)

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
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
        reason = messages.REASON_FAILED if failed else messages.REASON_SUCCEEDED
        message = job_messages.pods_succeeded(len(pods) - failed, len(pods))
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
