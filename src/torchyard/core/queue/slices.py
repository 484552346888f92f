"""Jobs that change their size while they run: each size is a workload, and the next takes the last one's place.

Growing asks for a new workload, of which only what is more needs quota; shrinking gives back in place. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.conditions import has_true_condition
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.resources import milli, shown


def is_elastic(obj: Object) -> bool:
    """Of a job or of its workload."""
    return (obj["metadata"].get("annotations") or {}).get(names.ELASTIC) == "true"


def is_admitted(workload: Object) -> bool:
    return bool((workload.get("status") or {}).get("admission")) and has_true_condition(workload, messages.ADMITTED)


def _age(workload: Object) -> tuple[str, str]:
    metadata = workload["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def current(workloads: list[Object]) -> Object:
    """The workload that says how a job is to be: the last one admitted, else the first that waits."""
    running = [one for one in workloads if (one.get("status") or {}).get("admission")]
    return _newest(running) if running else min(workloads, key=_age)


def _newest(workloads: list[Object]) -> Object:
    """By whom it replaces, since two sizes may have been asked for within the same second."""
    replaced = {(one["metadata"].get("annotations") or {}).get(names.REPLACES) for one in workloads}
    left = [one for one in workloads if f"{one['metadata']['namespace']}/{one['metadata']['name']}" not in replaced]
    return max(left, key=_age)


@dataclass(frozen=True)
class Plan:
    """What is to be done about the workloads of an elastic job that runs."""

    replaced: list[Object] = field(default_factory=list)  # to be finished: another took their place
    unwanted: list[Object] = field(default_factory=list)  # to be deleted: a size nobody wants any more
    shrunk: Object | None = None  # with its new size in it
    grows: bool = False  # ask for a workload of the job's size


def plan(workloads: list[Object], wanted: int) -> Plan:
    """`workloads`: those of the job that have not ended; `wanted`: how many pods it wants now."""
    admitted = [one for one in workloads if is_admitted(one)]
    if not admitted:
        return Plan()
    now = _newest(admitted)
    replaced = [one for one in admitted if one is not now]
    others = [one for one in workloads if one not in admitted and not one["metadata"].get("deletionTimestamp")]
    have = now["spec"]["podSets"][0]["count"]
    if wanted <= have:
        return Plan(replaced, unwanted=others, shrunk=resized(now, wanted))
    fitting = [one for one in others if one["spec"]["podSets"][0]["count"] == wanted]
    return Plan(replaced, unwanted=[one for one in others if one not in fitting[:1]], grows=not fitting)


def resized(workload: Object, count: int) -> Object | None:
    """An admitted workload with fewer pods, in what it asks for and in what it was given; None if it has so many."""
    [pod_set], [given] = workload["spec"]["podSets"], workload["status"]["admission"]["podSetAssignments"]
    before = given.get("count", pod_set["count"])
    if count == pod_set["count"] == before:
        return None
    usage = {name: shown(name, milli(text) * count // before) for name, text in given["resourceUsage"].items()}
    admission = {
        **workload["status"]["admission"],
        "podSetAssignments": [{**given, "count": count, "resourceUsage": usage}],
    }
    return {
        **workload,
        "spec": {**workload["spec"], "podSets": [{**pod_set, "count": count}]},
        "status": {**workload["status"], "admission": admission},
    }


def is_gated(pod: Object) -> bool:
    return any(one["name"] == names.ELASTIC for one in pod["spec"].get("schedulingGates") or ())


def to_open(pods: list[Object], admitted: int) -> list[Object]:
    """The gated pods that may start, so that as many run as were admitted."""
    alive = [one for one in pods if (one.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    gated = sorted((one for one in alive if is_gated(one)), key=_age)
    return gated[: max(0, admitted - (len(alive) - len(gated)))]


def opened(pod: Object) -> Object:
    gates = [one for one in pod["spec"]["schedulingGates"] if one["name"] != names.ELASTIC]
    rest = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    return {**pod, "spec": {**rest, "schedulingGates": gates} if gates else rest}
