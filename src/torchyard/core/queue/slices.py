"""Workload slices: elastic jobs change their size while they run, and each size has a workload of its own.

To grow, a job gets a new workload that replaces the running one and needs quota only for the additional pods. To
shrink, the running workload is changed in place. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.conditions import has_true_condition
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.api.queue import messages, names
from torchyard.core.queue.pod_groups import without_gate


def is_elastic(obj: Object) -> bool:
    """Whether a job or its workload is elastic."""
    return (obj["metadata"].get("annotations") or {}).get(names.ELASTIC) == "true"


def is_admitted(workload: Object) -> bool:
    return bool((workload.get("status") or {}).get("admission")) and has_true_condition(workload, messages.ADMITTED)


def _age(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def current_slice(workloads: list[Object]) -> Object:
    """The workload that determines what a job does: the latest with quota, otherwise the oldest."""
    reserving = [workload for workload in workloads if (workload.get("status") or {}).get("admission")]
    return _latest(reserving) if reserving else min(workloads, key=_age)


def _latest(workloads: list[Object]) -> Object:
    """The one that no other replaces. Creation times do not tell: two sizes may be created within one second."""
    replaced = {(workload["metadata"].get("annotations") or {}).get(names.REPLACES) for workload in workloads}
    latest = [
        workload
        for workload in workloads
        if f"{workload['metadata']['namespace']}/{workload['metadata']['name']}" not in replaced
    ]
    return max(latest, key=_age)


@dataclass(frozen=True)
class SlicePlan:
    """What to do about the workloads of a running elastic job."""

    replaced: list[Object] = field(default_factory=list)  # finish them
    obsolete: list[Object] = field(default_factory=list)  # delete them: they are for a size that is no longer needed
    shrunk: Object | None = None  # write this version, which has the new size
    grows: bool = False  # create a workload of the job's size


def plan_slices(workloads: list[Object], count: int) -> SlicePlan:
    """`workloads`: those of the job that are not finished. `count`: how many pods the job needs now."""
    admitted = [workload for workload in workloads if is_admitted(workload)]
    if not admitted:
        return SlicePlan()
    running = _latest(admitted)
    replaced = [workload for workload in admitted if workload is not running]
    pending = [
        workload
        for workload in workloads
        if workload not in admitted and not workload["metadata"].get("deletionTimestamp")
    ]
    if count <= running["spec"]["podSets"][0]["count"]:
        return SlicePlan(replaced, obsolete=pending, shrunk=resize(running, count))
    matching = [workload for workload in pending if workload["spec"]["podSets"][0]["count"] == count]
    obsolete = [workload for workload in pending if workload not in matching[:1]]
    return SlicePlan(replaced, obsolete=obsolete, grows=not matching)


def resize(workload: Object, count: int) -> Object | None:
    """An admitted workload with fewer pods; None if it has that size already.

    As in Kueue its admission stays, and the smaller of both counts holds quota.
    """
    [pod_set] = workload["spec"]["podSets"]
    if count == pod_set["count"]:
        return None
    return {**workload, "spec": {**workload["spec"], "podSets": [{**pod_set, "count": count}]}}


def admitted_count(workload: Object) -> int:
    """How many pods of an admitted workload may run."""
    [pod_set], [assignment] = workload["spec"]["podSets"], workload["status"]["admission"]["podSetAssignments"]
    count: int = pod_set["count"]
    admitted: int = assignment.get("count", count)
    return min(count, admitted)


def is_gated(pod: Object) -> bool:
    return any(gate["name"] == names.ELASTIC for gate in pod["spec"].get("schedulingGates") or ())


def pods_to_ungate(pods: list[Object], admitted: int) -> list[Object]:
    """The gated pods that may start, so that as many run as are admitted."""
    alive = [pod for pod in pods if not has_ended(pod)]
    gated = sorted((pod for pod in alive if is_gated(pod)), key=_age)
    return gated[: max(0, admitted - (len(alive) - len(gated)))]


def ungate(pod: Object) -> Object:
    return without_gate(pod, names.ELASTIC)
