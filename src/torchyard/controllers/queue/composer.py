"""Creates the workload of a job: its pod sets, its queue, its priority, its time limit."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, names
from torchyard.controllers.queue.gvr import POD_PRIORITY_CLASSES, PRIORITY_CLASSES
from torchyard.core.queue.integrations import JobIntegration, queue_name_of
from torchyard.core.queue.slices import is_elastic
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory

_is_seconds = re.compile("[0-9]{1,10}").fullmatch


class PriorityClassNotFound(YardError):
    """The job names a WorkloadPriorityClass that does not exist."""

    code = "PriorityClassNotFound"


class _Priority(NamedTuple):
    value: int
    class_ref: Object | None


def admission_gates(obj: Object) -> str:
    """The controllers that keep a job or its workload from being scheduled, separated by commas."""
    gates: str = (obj["metadata"].get("annotations") or {}).get(names.ADMISSION_GATED_BY, "")
    return gates


class WorkloadComposer:
    def __init__(self, informers: InformerFactory, integration: JobIntegration, gvr: GroupVersionResource) -> None:
        self._integration, self._gvr = integration, gvr
        self._classes = informers.for_resource(PRIORITY_CLASSES)
        self._pod_classes = informers.for_resource(POD_PRIORITY_CLASSES)
        self.informers: list[Informer] = [self._classes, self._pod_classes]

    def compose(self, job: Object, *, replaces: Object | None = None) -> Object:
        """`replaces`: the workload of the same running job that the new one is to replace."""
        job_metadata, integration, elastic = job["metadata"], self._integration, is_elastic(job)
        owner = controller_reference(job, self._gvr.api_version, integration.kind)
        metadata: Object = {
            "name": names.workload_name(
                integration.kind,
                integration.group,
                job_metadata["name"],
                job_metadata["uid"],
                generation=job_metadata.get("generation") if elastic else None,
            ),
            "namespace": job_metadata["namespace"],
            "labels": {names.JOB_UID: job_metadata["uid"]},
            "finalizers": [names.IN_USE],
            "ownerReferences": [owner],
        }
        annotations = {names.ELASTIC: "true"} if elastic else {}
        if gates := admission_gates(job):
            annotations[names.ADMISSION_GATED_BY] = gates
        if replaces is not None:
            annotations[names.REPLACES] = f"{job_metadata['namespace']}/{replaces['metadata']['name']}"
        if annotations:
            metadata["annotations"] = annotations
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.WORKLOAD.kind,
            "metadata": metadata,
            "spec": self._spec(job),
        }

    def _spec(self, job: Object) -> Object:
        priority = self._priority(job)
        spec: Object = {
            "podSets": self._integration.pod_sets(job),
            "queueName": queue_name_of(job),
            "priority": priority.value,
            "active": True,
        }
        if priority.class_ref is not None:
            spec["priorityClassRef"] = priority.class_ref
        limit = (job["metadata"].get("labels") or {}).get(names.MAX_SECONDS)
        if limit is not None:
            if not _is_seconds(limit) or int(limit) < 1:
                raise YardError(job_messages.invalid_max_seconds(limit), hint=job_messages.MAX_SECONDS_HINT)
            spec["maximumExecutionTimeSeconds"] = int(limit)
        return spec

    def _priority(self, job: Object) -> _Priority:
        """From the WorkloadPriorityClass, otherwise from the PriorityClass of the pods, otherwise 0."""
        name = (job["metadata"].get("labels") or {}).get(names.PRIORITY)
        if name:
            workload_class = self._classes.get("", name)
            if workload_class is None:
                raise PriorityClassNotFound(job_messages.priority_class_not_found(name))
            reference = {"group": names.GROUP, "kind": names.PRIORITY_CLASS.kind, "name": name}
            return _Priority(workload_class["value"], reference)
        pod_class_name = self._pod_class_name(job)
        pod_class = self._pod_classes.get("", pod_class_name) if pod_class_name else None
        if pod_class is None:
            return _Priority(0, None)
        reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": pod_class_name}
        return _Priority(pod_class["value"], reference)

    def _pod_class_name(self, job: Object) -> str:
        policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        if policy.get("priorityClass"):
            return str(policy["priorityClass"])
        specs = (pod_set["template"].get("spec") or {} for pod_set in self._integration.pod_sets(job))
        return next((spec["priorityClassName"] for spec in specs if spec.get("priorityClassName")), "")
