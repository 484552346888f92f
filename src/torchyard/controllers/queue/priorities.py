"""The priority of jobs and pods, from the classes that they name, and what changes with a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchyard.api.errors import StatusError, YardError
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.gvr import POD_PRIORITY_CLASSES, PRIORITY_CLASSES, WORKLOADS
from torchyard.controllers.queue.stores import QueueStore
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informer_factory import InformerFactory


class PriorityClassNotFound(YardError):
    """The job names a WorkloadPriorityClass that does not exist."""

    code = "PriorityClassNotFound"


class Priority(NamedTuple):
    value: int
    class_ref: Object | None

    def fields(self) -> Object:
        """As part of the spec of a workload."""
        reference = {} if self.class_ref is None else {"priorityClassRef": self.class_ref}
        return {"priority": self.value, **reference}


class Priorities:
    def __init__(self, informers: InformerFactory) -> None:
        self._classes = informers.for_resource(PRIORITY_CLASSES)
        self._pod_classes = informers.for_resource(POD_PRIORITY_CLASSES)
        self.informers: list[Informer] = [self._classes, self._pod_classes]

    def of(self, obj: Object, pod_class_name: str) -> Priority:
        """From the WorkloadPriorityClass, otherwise from the PriorityClass of the pods, otherwise 0."""
        name = class_name_of(obj)
        if name:
            workload_class = self._classes.get("", name)
            if workload_class is None:
                raise PriorityClassNotFound(job_messages.priority_class_not_found(name))
            return Priority(workload_class["value"], _reference(name))
        pod_class = self._pod_classes.get("", pod_class_name) if pod_class_name else None
        if pod_class is None:
            return Priority(0, None)
        reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": pod_class_name}
        return Priority(pod_class["value"], reference)

    def on_change(self, jobs: Informer, add: Callable[[Key], None], key_of: Callable[[Object], Key]) -> None:
        """Call `add` for each of these jobs whose class was created or changed. Classes rarely change."""

        def class_changed(change: str, obj: Object, before: Object | None) -> None:
            if change == "DELETED" or (before is not None and before.get("value") == obj.get("value")):
                return
            for job in jobs:
                if class_name_of(job) == obj["metadata"]["name"]:
                    add(key_of(job))

        self._classes.on_change(class_changed)


def class_name_of(obj: Object) -> str:
    """The WorkloadPriorityClass that a job or pod names; empty if it names none."""
    return str((obj["metadata"].get("labels") or {}).get(names.PRIORITY) or "")


class PriorityClassFollower:
    """Gives the workloads of a WorkloadPriorityClass its new value. A class that is deleted leaves them as they are."""

    def __init__(self, store: QueueStore, informers: InformerFactory) -> None:
        self._store, self._classes = store, informers.for_resource(PRIORITY_CLASSES)
        self._controller = Controller("kueue-priority-classes", self._reconcile, [self._classes, *store.informers])
        self._classes.on_change(self._class_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _class_changed(self, change: str, obj: Object, before: Object | None) -> None:
        if change != "DELETED" and before is not None and before.get("value") != obj.get("value"):
            self._controller.queue.add(("", obj["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> None:
        priority_class = self._classes.get(*key)
        if priority_class is None:
            return
        value = priority_class["value"]
        for info in list(self._store.state.cache.workloads.values()):
            spec = info.obj.get("spec") or {}
            if info.is_finished or spec.get("priority") == value or spec.get("priorityClassRef") != _reference(key[1]):
                continue
            try:
                await self._store.client.patch(WORKLOADS, info.key[1], {"spec": {"priority": value}}, info.key[0])
            except StatusError as error:
                if error.reason != "NotFound":
                    raise


def _reference(name: str) -> Object:
    return {"group": names.GROUP, "kind": names.PRIORITY_CLASS.kind, "name": name}
