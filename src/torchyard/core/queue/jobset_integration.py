"""JobSets in queues: one pod set for each replicated job, as Kueue's integration `jobset.x-k8s.io/jobset`."""

from __future__ import annotations

import copy

from torchyard.api.conditions import find
from torchyard.api.jobset import messages, names
from torchyard.api.objects import Object
from torchyard.core.queue.integrations import JobResult, PodSetInfo, apply_pod_set_info, restore_template


class JobSetIntegration:
    group, kind, framework = names.GROUP, names.KIND, "jobset.x-k8s.io/jobset"

    def pod_sets(self, job: Object) -> list[Object]:
        pod_sets: list[Object] = []
        for replicated_job in _replicated_jobs(job):
            template = copy.deepcopy(_pod_template(replicated_job))
            metadata = template.get("metadata") or {}
            template["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
            count = names.replicas(replicated_job) * _pods_of_a_job(replicated_job)
            pod_sets.append({"name": replicated_job["name"], "count": count, "template": template})
        return pod_sets

    def is_suspended(self, job: Object) -> bool:
        return bool(job["spec"].get("suspend"))

    def active_pods(self, job: Object) -> int:
        """At least one for each Job with active pods; the status counts Jobs."""
        return sum(int(status["active"]) for status in _statuses(job))

    def result(self, job: Object) -> JobResult | None:
        conditions = (job.get("status") or {}).get("conditions") or ()
        for type in messages.TERMINAL:
            condition = find(conditions, type)
            if condition is not None and condition["status"] == "True":
                return JobResult(type == messages.COMPLETED, condition.get("message") or "")
        return None

    def pods_ready(self, job: Object) -> bool:
        ready = sum(int(status["ready"]) + int(status["succeeded"]) for status in _statuses(job))
        return ready == sum(names.replicas(replicated_job) for replicated_job in _replicated_jobs(job))

    def reclaimable_pods(self, job: Object) -> dict[str, int]:
        pods = {replicated_job["name"]: _pods_of_a_job(replicated_job) for replicated_job in _replicated_jobs(job)}
        succeeded = {status["name"]: int(status["succeeded"]) for status in _statuses(job)}
        return {name: count * pods[name] for name, count in succeeded.items() if count and name in pods}

    def start(self, job: Object, infos: list[PodSetInfo]) -> Object:
        infos_by_name = {info.name: info for info in infos}
        changed = [
            _with_pod_template(each, apply_pod_set_info(_pod_template(each), infos_by_name[each["name"]]))
            for each in _replicated_jobs(job)
        ]
        spec: Object = {"suspend": False}
        return {"spec": {**spec, "replicatedJobs": changed} if changed != _replicated_jobs(job) else spec}

    def suspend(self, job: Object) -> Object:
        return {"spec": {"suspend": True}}

    def restore(self, job: Object, pod_sets: list[Object]) -> Object | None:
        originals = {pod_set["name"]: pod_set["template"] for pod_set in pod_sets}
        restored = [
            _with_pod_template(each, restore_template(_pod_template(each), originals[each["name"]]))
            if each["name"] in originals
            else each
            for each in _replicated_jobs(job)
        ]
        return {"spec": {"replicatedJobs": restored}} if restored != _replicated_jobs(job) else None


def _replicated_jobs(job: Object) -> list[Object]:
    return job["spec"].get("replicatedJobs") or []


def _statuses(job: Object) -> list[Object]:
    return (job.get("status") or {}).get("replicatedJobsStatus") or []


def _job_spec(replicated_job: Object) -> Object:
    return (replicated_job.get("template") or {}).get("spec") or {}


def _pod_template(replicated_job: Object) -> Object:
    template: Object = _job_spec(replicated_job).get("template") or {}
    return template


def _pods_of_a_job(replicated_job: Object) -> int:
    spec = _job_spec(replicated_job)
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    return int(min(parallelism, completions) if completions is not None else parallelism)


def _with_pod_template(replicated_job: Object, pod_template: Object) -> Object:
    """The replicated job with another pod template; an unchanged one stays as it is."""
    current = _pod_template(replicated_job)
    if _without_empty_metadata(pod_template) == _without_empty_metadata(current):
        return replicated_job
    spec = {**_job_spec(replicated_job), "template": pod_template}
    return {**replicated_job, "template": {**(replicated_job.get("template") or {}), "spec": spec}}


def _without_empty_metadata(template: Object) -> Object:
    return {key: value for key, value in template.items() if key != "metadata" or value}
