"""Creates the workload of a job: its pod sets, its queue, its priority, its time limit."""

from __future__ import annotations

import re

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, names
from torchyard.controllers.queue.priorities import Priorities, Priority
from torchyard.core.queue.integrations import JobIntegration, queue_name_of
from torchyard.core.queue.slices import is_elastic
from torchyard.kube.informer_factory import InformerFactory

_is_seconds = re.compile("[0-9]{1,10}").fullmatch


def admission_gates(obj: Object) -> str:
    """The controllers that keep a job or its workload from being scheduled, separated by commas."""
    gates: str = (obj["metadata"].get("annotations") or {}).get(names.ADMISSION_GATED_BY, "")
    return gates


class WorkloadComposer:
    def __init__(self, informers: InformerFactory, integration: JobIntegration, gvr: GroupVersionResource) -> None:
        self._integration, self._gvr = integration, gvr
        self.priorities = Priorities(informers)

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
        return {
            "podSets": self._integration.pod_sets(job),
            "queueName": queue_name_of(job),
            "active": True,
            **self.priority(job).fields(),
            **time_limit(job),
        }

    def priority(self, job: Object) -> Priority:
        return self.priorities.of(job, self._pod_class_name(job))

    def _pod_class_name(self, job: Object) -> str:
        policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        if policy.get("priorityClass"):
            return str(policy["priorityClass"])
        specs = (pod_set["template"].get("spec") or {} for pod_set in self._integration.pod_sets(job))
        return next((spec["priorityClassName"] for spec in specs if spec.get("priorityClassName")), "")


def time_limit(obj: Object) -> Object:
    """The limit of a job or a pod, as part of the spec of its workload."""
    limit = (obj["metadata"].get("labels") or {}).get(names.MAX_SECONDS)
    if limit is None:
        return {}
    if not _is_seconds(limit) or int(limit) < 1:
        raise YardError(job_messages.invalid_max_seconds(limit), hint=job_messages.MAX_SECONDS_HINT)
    return {"maximumExecutionTimeSeconds": int(limit)}
