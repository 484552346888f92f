"""The integrations: for each kind of job, which pods it needs and how it is started, suspended and restored.

Pure: objects in, merge patches out. The names follow Kueue's jobframework.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torchyard.api.conditions import find, is_true
from torchyard.api.errors import YardError
from torchyard.api.job.labels import CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages as pytorchjob_messages
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.pytorchjob.defaults import with_defaults
from torchyard.api.queue import job_messages, names
from torchyard.api.queue.job_validation import syncs_completions

_COUNT_DIGITS = 10  # of an int32
_CONTROLLER_LABELS = (CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME)


class CannotStart(YardError):
    """The admission contradicts the job."""

    code = "CannotStart"


class PodSetsUnknown(YardError):
    """What the pods depend on does not exist yet. The job is looked at again when it does."""

    code = "PodSetsUnknown"


@dataclass(frozen=True)
class PodSetInfo:
    """What an admission adds to the pods of one pod set."""

    name: str
    count: int
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Object] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class JobResult(NamedTuple):
    succeeded: bool
    message: str


class JobIntegration(Protocol):
    group: str
    kind: str
    framework: str  # part of the names of controllers and event sources

    def pod_sets(self, job: Object) -> list[Object]:
        """The pod sets of its workload, with the templates as the user wrote them."""
        ...

    def is_suspended(self, job: Object) -> bool: ...

    def active_pods(self, job: Object) -> int:
        """How many pods still use quota."""
        ...

    def result(self, job: Object) -> JobResult | None:
        """None while the job goes on."""
        ...

    def pods_ready(self, job: Object) -> bool: ...

    def reclaimable_pods(self, job: Object) -> dict[str, int]:
        """How many pods of each pod set are not needed any more."""
        ...

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object: ...

    def suspend(self, job: Object) -> Object: ...

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        """The patch that undoes `start` in a suspended job; None if there is nothing to undo."""
        ...


def apply_pod_set_info(template: Object, info: PodSetInfo) -> Object:
    """A template with what the admission adds. Raises `CannotStart` where the two contradict each other."""
    result = copy.deepcopy(template)
    spec, metadata = result.setdefault("spec", {}), result.setdefault("metadata", {}) or {}
    result["metadata"] = metadata
    spec["nodeSelector"] = _merge(spec.get("nodeSelector"), info.node_selector, "node selector")
    metadata["labels"] = _merge(metadata.get("labels"), info.labels, "label")
    metadata["annotations"] = _merge(metadata.get("annotations"), info.annotations, "annotation")
    for parent, name in ((spec, "nodeSelector"), (metadata, "labels"), (metadata, "annotations")):
        if not parent[name]:
            del parent[name]
    tolerations = spec.get("tolerations") or []
    more = [toleration for toleration in info.tolerations if toleration not in tolerations]
    if more:
        spec["tolerations"] = [*tolerations, *more]
    return result


def _merge(in_job: dict[str, str] | None, added: dict[str, str], field: str) -> dict[str, str]:
    for key, value in added.items():
        if in_job and in_job.get(key, value) != value:
            raise CannotStart(job_messages.conflicting_value(field, key, in_job[key], value))
    return {**(in_job or {}), **added}


def restore_template(current: Object, original: Object, keep_labels: tuple[str, ...] = ()) -> Object:
    """The current template with the parts of the original that an admission can change."""
    result = copy.deepcopy(current)
    spec, metadata = result.setdefault("spec", {}), result.get("metadata") or {}
    original_spec, original_metadata = original.get("spec") or {}, original.get("metadata") or {}
    for parent, original_parent, name in (
        (spec, original_spec, "nodeSelector"),
        (spec, original_spec, "tolerations"),
        (metadata, original_metadata, "labels"),
        (metadata, original_metadata, "annotations"),
    ):
        value = copy.deepcopy(original_parent.get(name))
        if name == "labels":
            own = {key: text for key, text in (parent.get("labels") or {}).items() if key in keep_labels}
            value = {**(value or {}), **own} or None
        if value:
            parent[name] = value
        else:
            parent.pop(name, None)
    if metadata:
        result["metadata"] = metadata
    else:
        result.pop("metadata", None)
    return result


def _template_patch(before: Object, after: Object) -> Object:
    """The merge patch that turns one template into the other, with null for each field that is removed."""
    patch: Object = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if key not in after:
            patch[key] = None
        elif isinstance(old, dict) and isinstance(new, dict):
            inner = _template_patch(old, new)
            if inner:
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch


class BatchJobIntegration:
    group, kind, framework = "batch", "Job", "batch/job"

    def pod_sets(self, job: Object) -> list[Object]:
        spec, annotations = job["spec"], job["metadata"].get("annotations") or {}
        template = copy.deepcopy(spec["template"])
        metadata = template.get("metadata") or {}
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _CONTROLLER_LABELS}
        user_metadata = {"labels": labels, "annotations": metadata.get("annotations") or {}}
        template["metadata"] = {key: value for key, value in user_metadata.items() if value}
        pod_set: Object = {"name": names.MAIN, "count": self.count(job), "template": template}
        min_count = annotations.get(names.MIN_PARALLELISM)
        if min_count is not None:
            if (
                not (min_count.isascii() and min_count.isdigit() and len(min_count) <= _COUNT_DIGITS)
                or not 0 < int(min_count) < pod_set["count"]
            ):
                raise YardError(
                    job_messages.invalid_min_parallelism(min_count),
                    hint=job_messages.min_parallelism_hint(pod_set["count"]),
                )
            pod_set["minCount"] = int(min_count)
        return [pod_set]

    def count(self, job: Object) -> int:
        """How many pods it runs at once."""
        parallelism, completions = job["spec"].get("parallelism", 1), job["spec"].get("completions")
        return int(min(parallelism, completions) if completions is not None else parallelism)

    def is_suspended(self, job: Object) -> bool:
        return bool(job["spec"].get("suspend"))

    def active_pods(self, job: Object) -> int:
        status = job.get("status") or {}
        return int(status.get("active") or 0) + int(status.get("terminating") or 0)

    def result(self, job: Object) -> JobResult | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in ("Complete", "Failed"):
            condition = find(conditions, type)
            if condition is not None and condition["status"] == "True":
                return JobResult(type == "Complete", condition.get("message") or job_messages.JOB_FINISHED_SUCCESSFULLY)
        return None

    def pods_ready(self, job: Object) -> bool:
        status = job.get("status") or {}
        return int(status.get("ready") or 0) + int(status.get("succeeded") or 0) >= self.count(job)

    def reclaimable_pods(self, job: Object) -> dict[str, int]:
        spec, succeeded = job["spec"], int((job.get("status") or {}).get("succeeded") or 0)
        parallelism = self.count(job)
        if parallelism <= 1 or not succeeded:
            return {}
        completions = spec.get("completions")
        remaining = (completions if completions is not None else parallelism) - succeeded
        return {names.MAIN: parallelism - max(0, remaining)} if remaining < parallelism else {}

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        spec, info = job["spec"], infos[0]
        template = _template_patch(spec["template"], apply_pod_set_info(spec["template"], info))
        patch: Object = {"suspend": False}
        if template:
            patch["template"] = template
        if info.count < self.count(job):
            patch["parallelism"] = info.count
            if syncs_completions(job["metadata"].get("annotations") or {}):
                patch["completions"] = info.count
        return {"spec": patch}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"suspend": True}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        current, annotations = job["spec"]["template"], job["metadata"].get("annotations") or {}
        patch: Object = {}
        restored = restore_template(current, pod_sets[0]["template"], _CONTROLLER_LABELS)
        template = _template_patch(current, restored)
        if template:
            patch["template"] = template
        if names.MIN_PARALLELISM in annotations and self.count(job) != pod_sets[0]["count"]:
            patch["parallelism"] = pod_sets[0]["count"]
            if syncs_completions(annotations):
                patch["completions"] = pod_sets[0]["count"]
        return {"spec": patch} if patch else None


class PyTorchJobIntegration:
    group, kind, framework = pytorchjob.GROUP, pytorchjob.KIND, "kubeflow.org/pytorchjob"

    def _replica_specs(self, job: Object) -> list[tuple[str, Object]]:
        specs = with_defaults(job)["spec"]["pytorchReplicaSpecs"]
        return [(type, specs[type]) for type in pytorchjob.REPLICA_TYPES if type in specs]

    def pod_sets(self, job: Object) -> list[Object]:
        elastic_policy = job["spec"].get("elasticPolicy") or {}
        user_specs = job["spec"].get("pytorchReplicaSpecs") or {}
        pod_sets: list[Object] = []
        for type, replica_spec in self._replica_specs(job):
            template = copy.deepcopy(user_specs[type].get("template") or {})
            metadata = template.get("metadata") or {}
            template["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
            pod_set: Object = {"name": type.lower(), "count": replica_spec["replicas"], "template": template}
            min_count = elastic_policy.get("minReplicas")
            if type == pytorchjob.WORKER and min_count is not None and min_count < pod_set["count"]:
                pod_set["minCount"] = min_count  # an elastic job may start with fewer workers
            pod_sets.append(pod_set)
        return pod_sets

    def is_suspended(self, job: Object) -> bool:
        return bool((job["spec"].get("runPolicy") or {}).get("suspend"))

    def active_pods(self, job: Object) -> int:
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        return sum(int((status or {}).get("active") or 0) for status in statuses.values())

    def result(self, job: Object) -> JobResult | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in pytorchjob_messages.TERMINAL:
            condition = find(conditions, type)
            if condition is not None and condition["status"] == "True":
                return JobResult(type == pytorchjob_messages.SUCCEEDED, condition.get("message") or "")
        return None

    def pods_ready(self, job: Object) -> bool:
        return is_true((job.get("status") or {}).get("conditions") or (), pytorchjob_messages.RUNNING)

    def reclaimable_pods(self, job: Object) -> dict[str, int]:
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        succeeded = {type.lower(): int((statuses.get(type) or {}).get("succeeded") or 0) for type in statuses}
        return {name: count for name, count in succeeded.items() if count}

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        infos_by_name = {info.name: info for info in infos}
        replica_specs: Object = {}
        user_specs = job["spec"]["pytorchReplicaSpecs"]
        for type, replica_spec in self._replica_specs(job):
            info = infos_by_name[type.lower()]
            before = user_specs[type].get("template") or {}
            template = _template_patch(before, apply_pod_set_info(before, info))
            change: Object = {"template": template} if template else {}
            if info.count < replica_spec["replicas"]:
                change["replicas"] = info.count
            if change:
                replica_specs[type] = change
        spec: Object = {"runPolicy": {"suspend": False}}
        return {"spec": {**spec, "pytorchReplicaSpecs": replica_specs} if replica_specs else spec}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"runPolicy": {"suspend": True}}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        originals = {pod_set["name"]: pod_set for pod_set in pod_sets}
        replica_specs: Object = {}
        for type, replica_spec in (job["spec"].get("pytorchReplicaSpecs") or {}).items():
            original = originals.get(type.lower())
            if original is None or replica_spec is None:
                continue
            current = replica_spec.get("template") or {}
            template = _template_patch(current, restore_template(current, original["template"]))
            change: Object = {"template": template} if template else {}
            if "minCount" in original and replica_spec.get("replicas") != original["count"]:
                change["replicas"] = original["count"]
            if change:
                replica_specs[type] = change
        return {"spec": {"pytorchReplicaSpecs": replica_specs}} if replica_specs else None


def queue_name_of(job: Object) -> str:
    """The LocalQueue a job names; empty if it is not queued."""
    return str((job["metadata"].get("labels") or {}).get(names.QUEUE_NAME, ""))
