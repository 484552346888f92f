"""Which replicated jobs may start: spec.replicatedJobs[].dependsOn and the deprecated startup policy."""

from __future__ import annotations

from torchyard.api.jobset import names
from torchyard.api.objects import Object


def is_in_order(spec: Object) -> bool:
    return (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == names.IN_ORDER


def has_started(replicated_job: Object, counts: dict[str, Object]) -> bool:
    """Whether every Job is ready or finished."""
    return names.replicas(replicated_job) == _started(counts.get(replicated_job["name"]))


def dependencies_met(replicated_job: Object, replicated_jobs: list[Object], counts: dict[str, Object]) -> bool:
    replicas = {job["name"]: names.replicas(job) for job in replicated_jobs}
    return all(
        _is_reached(dependency, replicas.get(dependency["name"], 0), counts.get(dependency["name"]))
        for dependency in replicated_job.get("dependsOn") or ()
    )


def _is_reached(dependency: Object, replicas: int, count: Object | None) -> bool:
    if count is None:
        return False
    reached = count["succeeded"] if dependency["status"] == names.COMPLETE else _started(count)
    return bool(replicas == reached)


def _started(count: Object | None) -> int:
    return count["failed"] + count["ready"] + count["succeeded"] if count else 0
