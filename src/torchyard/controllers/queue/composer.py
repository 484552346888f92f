"""The workload of a job: its pods, its queue, its priority, its limit of time."""

from __future__ import annotations

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.queue.refs import POD_PRIORITY_CLASSES, PRIORITY_CLASSES
from torchyard.core.queue.integrations import Adapter, queue_of
from torchyard.core.queue.slices import is_elastic
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory


class NoSuchClass(YardError):
    """The job asks for a priority that nobody has defined."""

    code = "NoSuchClass"


class Composer:
    def __init__(self, informers: InformerFactory, adapter: Adapter, ref: GroupVersionResource) -> None:
        self._adapter, self._ref = adapter, ref
        self._classes = informers.for_resource(PRIORITY_CLASSES)
        self._pod_classes = informers.for_resource(POD_PRIORITY_CLASSES)
        self.informers: list[Informer] = [self._classes, self._pod_classes]

    def workload(self, job: Object, *, replaces: Object | None = None) -> Object:
        """`replaces`: the workload of the same running job whose place this one is to take."""
        metadata, adapter, elastic = job["metadata"], self._adapter, is_elastic(job)
        generation = metadata.get("generation") if elastic else None
        name = names.workload_name(
            adapter.kind, adapter.group, metadata["name"], metadata["uid"], generation=generation
        )
        owner = {
            "apiVersion": self._ref.api_version,
            "kind": adapter.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        annotations = {names.ELASTIC: "true"} if elastic else {}
        if replaces is not None:
            annotations[names.REPLACES] = f"{metadata['namespace']}/{replaces['metadata']['name']}"
        about: Object = {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {names.JOB_UID: metadata["uid"]},
            "finalizers": [names.IN_USE],
            "ownerReferences": [owner],
        }
        if annotations:
            about["annotations"] = annotations
        kind = {"apiVersion": names.API_VERSION, "kind": names.WORKLOAD.kind}
        return {**kind, "metadata": about, "spec": self._spec(job)}

    def _spec(self, job: Object) -> Object:
        value, reference = self._priority(job)
        spec: Object = {
            "podSets": self._adapter.pod_sets(job),
            "queueName": queue_of(job),
            "priority": value,
            "active": True,
        }
        if reference is not None:
            spec["priorityClassRef"] = reference
        limit = (job["metadata"].get("labels") or {}).get(names.MAX_SECONDS)
        if limit is not None:
            if not limit.isdigit() or int(limit) < 1:
                raise YardError(f"the label {names.MAX_SECONDS} is {limit!r}", hint="write a number of seconds")
            spec["maximumExecutionTimeSeconds"] = int(limit)
        return spec

    def _priority(self, job: Object) -> tuple[int, Object | None]:
        """The queue's priority class, else the pods', else none."""
        name = (job["metadata"].get("labels") or {}).get(names.PRIORITY)
        if name:
            found = self._classes.get("", name)
            if found is None:
                raise NoSuchClass(messages.no_such_class(name))
            return found["value"], {"group": names.GROUP, "kind": names.PRIORITY_CLASS.kind, "name": name}
        policy = ((job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}).get("priorityClass")
        templates = (one["template"].get("spec") or {} for one in self._adapter.pod_sets(job))
        chosen = policy or next((one["priorityClassName"] for one in templates if one.get("priorityClassName")), "")
        found = self._pod_classes.get("", chosen) if chosen else None
        if found is None:
            return 0, None
        return found["value"], {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": chosen}
