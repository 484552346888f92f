"""The labels and annotations that tell a Job or pod of a JobSet who it is."""

from __future__ import annotations

from torchyard.api.jobset import names
from torchyard.api.objects import Object
from torchyard.core.jobset.view import job_restarts, restarts_single_jobs


def identity(jobset: Object, replicated_job: Object, index: int) -> dict[str, str]:
    """The same for a Job and its pods, as labels and as annotations."""
    metadata, spec, status = jobset["metadata"], jobset["spec"], jobset.get("status") or {}
    name, group = replicated_job["name"], replicated_job.get("groupName", "default")
    jobs = spec.get("replicatedJobs") or []
    in_group = [job for job in jobs if job.get("groupName", "default") == group]
    values = {
        names.JOBSET_NAME: metadata["name"],
        names.JOBSET_UID: metadata["uid"],
        names.REPLICATED_JOB_NAME: name,
        names.RESTART_ATTEMPT: status.get("restarts") or 0,
        names.REPLICATED_JOB_REPLICAS: names.replicas(replicated_job),
        names.GLOBAL_REPLICAS: sum(names.replicas(job) for job in jobs),
        names.JOB_INDEX: index,
        names.JOB_KEY: names.job_key(metadata["namespace"], names.job_name(metadata["name"], name, index)),
        names.JOB_GLOBAL_INDEX: _index_among(jobs, name, index),
        names.GROUP_NAME: group,
        names.GROUP_REPLICAS: sum(names.replicas(job) for job in in_group),
        names.JOB_GROUP_INDEX: _index_among(in_group, name, index),
    }
    if restarts_single_jobs(spec):
        values[names.JOB_RESTART_ATTEMPT] = job_restarts(jobset, name, index)
    if spec.get("coordinator") is not None:
        values[names.COORDINATOR] = names.coordinator_endpoint(jobset)
    return {key: str(value) for key, value in values.items()}


def placement(jobset: Object, replicated_job: Object) -> dict[str, str]:
    """The annotations of exclusive placement; those of the replicated job win over those of the JobSet."""
    own = ((replicated_job.get("template") or {}).get("metadata") or {}).get("annotations") or {}
    chosen: dict[str, str] = {}
    for source in (jobset["metadata"].get("annotations") or {}, own):
        if names.EXCLUSIVE_TOPOLOGY in source:
            for name in (names.EXCLUSIVE_TOPOLOGY, names.NODE_SELECTOR_STRATEGY):
                if name in source:
                    chosen[name] = source[name]
    return chosen


def _index_among(jobs: list[Object], name: str, index: int) -> int:
    """The index of a Job when the Jobs of all these replicated jobs are numbered in order."""
    before = 0
    for job in jobs:
        if job["name"] == name:
            break
        before += names.replicas(job)
    return before + index
