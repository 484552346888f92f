"""Pods that queue by themselves: gated until their group is admitted as a whole, deleted when it is evicted."""

from __future__ import annotations

from typing import Any

from torchyard.api.conditions import is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.pending_events import Reasons
from torchyard.controllers.queue.pod_set_infos import infos_of
from torchyard.controllers.queue.refs import WORKLOADS
from torchyard.controllers.queue.stores import SOON, State
from torchyard.core.queue import lifecycle, pod_groups
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informer_factory import InformerFactory


class PodController:
    def __init__(self, state: State, informers: InformerFactory) -> None:
        self._state, self._client = state, state.client
        self._pods = informers.for_resource(
            PODS, labels=f"{names.MANAGED}=true", indexes={"queue-group": lambda one: (_group_key(one),)}
        )
        self._reasons = Reasons()
        self.recorder = state.recorder(messages.framework("pod"))
        sources: list[Informer] = [self._pods, *state.informers]
        self._controller = Controller(messages.framework("pod"), self._reconcile, sources)
        self._pods.on_change(lambda _change, pod, _before: self._controller.queue.add(_key(pod)))
        state.workloads.on_change(self._workload_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if any(one["kind"] == "Pod" for one in obj["metadata"].get("ownerReferences") or ()):
            self._reasons.seen(change, obj)
            self._controller.queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        members = self._pods.by("queue-group", "/".join(key))
        workload = self._state.current(key)
        if workload is None:
            if members and not all(pod_groups.has_ended(one) for one in members):
                await self._compose(key, members)
            return None
        if self._state.is_writing(key):
            return SOON
        status = workload.get("status") or {}
        conditions = status.get("conditions") or ()
        alive = [one for one in members if not pod_groups.has_ended(one)]
        if is_true(conditions, messages.FINISHED):
            await self._state.let_go(workload)
        elif workload["metadata"].get("deletionTimestamp"):
            await self._delete(alive)
            if not alive:
                await self._state.let_go(workload)
        elif members and not alive:
            await self._finish(key, workload, members)
        elif is_true(conditions, messages.EVICTED) and status.get("admission"):
            await self._evict(key, workload, alive)
        elif is_true(conditions, messages.ADMITTED) and status.get("admission"):
            await self._start(workload, alive)
        elif (why := self._reasons.news(workload)) is not None:
            self._tell(alive, "Warning", *why, once=True)
        return None

    async def _compose(self, key: Key, members: list[Object]) -> None:
        try:
            if len(members) < pod_groups.size_of(members):
                return  # the rest is to come
        except YardError as error:
            self._tell(members, "Warning", messages.NOT_COMPOSED, str(error))
            return
        owners = [
            {"apiVersion": "v1", "kind": "Pod", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
            for one in members
        ]
        first = members[0]
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
                "podSets": pod_groups.pod_sets(members),
                "queueName": (first["metadata"].get("labels") or {}).get(names.QUEUE_NAME, ""),
                "priority": first["spec"].get("priority") or 0,
                "active": True,
            },
        }
        try:
            await self._client.create(WORKLOADS, workload)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        else:
            self._tell(members, "Normal", messages.CREATED, messages.created(*key))

    async def _start(self, workload: Object, members: list[Object]) -> None:
        infos = infos_of(workload, self._state.book.flavors)
        for pod in members:
            if pod_groups.is_gated(pod):
                await self._client.update(PODS, pod_groups.started(pod, infos))
                queue = workload["status"]["admission"]["clusterQueue"]
                self._tell([pod], "Normal", messages.JOB_STARTED, messages.started(queue))

    async def _evict(self, key: Key, workload: Object, members: list[Object]) -> None:
        """Pods cannot be stopped, only deleted; who made them may make them again."""
        await self._delete(members)
        if not members:
            await self._state.write(key, workload, lifecycle.release(workload, self._state.now()))

    async def _delete(self, members: list[Object]) -> None:
        for pod in members:
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self._client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])

    async def _finish(self, key: Key, workload: Object, members: list[Object]) -> None:
        failed = [one for one in members if one["status"]["phase"] == "Failed"]
        said = f"Pods succeeded: {len(members) - len(failed)}/{len(members)}."
        reason = messages.FAILED if failed else messages.SUCCEEDED
        await self._state.write(key, workload, lifecycle.finish(workload, reason, said, self._state.now()))
        self._tell(members, "Normal", messages.JOB_FINISHED, messages.finished(*key))

    def _tell(self, members: list[Object], kind: Any, reason: str, message: str, *, once: bool = False) -> None:
        for pod in members:
            self.recorder.event({**pod, "apiVersion": "v1", "kind": "Pod"}, kind, reason, message, once=once)


def _key(pod: Object) -> Key:
    return pod["metadata"]["namespace"], pod_groups.group_of(pod)


def _group_key(pod: Object) -> str:
    return "/".join(_key(pod))
