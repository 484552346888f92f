"""Plain pods that are queued alone or as a pod group: their workload, and how they are started. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import NamedTuple

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended, is_ready, phase
from torchyard.api.queue import job_messages, names
from torchyard.core.queue.integrations import PodSetInfo, apply_pod_set_info
from torchyard.core.queue.requirements import intern_pod_sets

_SIZE_DIGITS = 10  # of an int32; users write the annotation


def workload_name_of(pod: Object) -> str:
    """The name of a pod's workload: its group's name, or a generated one."""
    metadata = pod["metadata"]
    group = (metadata.get("labels") or {}).get(names.POD_GROUP)
    return str(group) if group else names.workload_name("Pod", "", metadata["name"], metadata["uid"])


def group_size(pods: list[Object]) -> int:
    """How many pods the group has when it is complete. Raises `YardError` if the pods do not agree on it."""
    if not is_group(pods[0]):
        return 1
    sizes = {_annotations(pod).get(names.POD_GROUP_SIZE) for pod in pods}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None or not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS):
        raise YardError(job_messages.POD_GROUP_SIZE_ERROR, hint=job_messages.POD_GROUP_SIZE_HINT)
    return int(size)


def is_group(pod: Object) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(names.POD_GROUP))


def queue_of(pods: list[Object]) -> str:
    """The LocalQueue of the group. Raises `YardError` if the pods do not agree on it."""
    queues = {str((pod["metadata"].get("labels") or {}).get(names.QUEUE_NAME, "")) for pod in pods}
    if len(queues) > 1:
        raise YardError(job_messages.POD_GROUP_QUEUES_ERROR, hint=job_messages.POD_GROUP_QUEUES_HINT)
    return queues.pop()


def role_of(pod: Object) -> str:
    """The name of a pod's pod set: pods with the same requirements form one."""
    return _role_of_spec(without_gate(pod)["spec"])


def _role_of_spec(spec: Object) -> str:
    pod_set = {"name": names.MAIN, "count": 1, "template": {"spec": spec}}
    requirements = intern_pod_sets([pod_set]).requirements
    return hashlib.sha1(requirements.key, usedforsecurity=False).hexdigest()[:8]


def pod_sets(pods: list[Object], size: int) -> list[Object] | None:
    """The pod sets of the first `size` pods of a group that can run. None if there are fewer, unless all of them agree
    to be admitted as soon as one exists: then those that are missing count as pods like the first."""
    runnable = sorted((pod for pod in pods if not _has_failed(pod)), key=_age)[:size]
    missing = size - len(runnable)
    if not runnable or (missing and not all(_annotations(pod).get(names.FAST_ADMISSION) == "true" for pod in pods)):
        return None
    by_role: dict[str, list[Object]] = {}
    for pod in runnable:
        by_role.setdefault(role_of(pod), []).append(pod)
    counts = {role: len(members) for role, members in by_role.items()}
    counts[role_of(runnable[0])] += missing
    return [
        {
            "name": role if is_group(members[0]) else names.MAIN,
            "count": counts[role],
            "template": {"spec": without_gate(members[0])["spec"]},
        }
        for role, members in sorted(by_role.items())
    ]


class GatedPods(NamedTuple):
    """Those that have a place in their workload, and those that have none: it counts fewer pods, or none like them.
    A pod whose place another one still leaves is in neither."""

    startable: list[Object]
    excess: list[Object]


def gated_pods(pods: list[Object], workload: Object) -> GatedPods:
    pod_sets = workload["spec"]["podSets"]
    names_by_role = {_role_of_spec(pod_set["template"]["spec"]): pod_set["name"] for pod_set in pod_sets}
    used: Counter[str] = Counter()
    ending: Counter[str] = Counter()
    for pod in pods:
        if not is_gated(pod) and not _has_failed(pod):
            is_ending = pod["metadata"].get("deletionTimestamp") and not has_ended(pod)
            (ending if is_ending else used)[_pod_set_of(pod)] += 1
    counts = {pod_set["name"]: pod_set["count"] for pod_set in pod_sets}
    result = GatedPods([], [])
    for pod in sorted(pods, key=_age):
        if not is_gated(pod) or has_ended(pod) or pod["metadata"].get("deletionTimestamp"):
            continue
        name = names_by_role.get(role_of(pod), "")
        used[name] += 1
        if used[name] > counts.get(name, 0):
            result.excess.append(pod)
        elif used[name] + ending[name] <= counts[name]:
            result.startable.append(pod)
    return result


def _pod_set_of(pod: Object) -> str:
    """The pod set that a started pod belongs to."""
    return str((pod["metadata"].get("labels") or {}).get(names.POD_SET, names.MAIN))


def is_finished(pods: list[Object], size: int) -> bool:
    """Whether nothing of the group runs or will run: a failed pod may be replaced, unless one of them excludes that."""
    if sum(phase(pod) == "Succeeded" for pod in pods) >= size:
        return True
    if not pods or not all(map(has_ended, pods)):
        return False
    return not is_group(pods[0]) or any(_annotations(pod).get(names.RETRIABLE_IN_GROUP) == "false" for pod in pods)


def are_ready(pods: list[Object], size: int) -> bool:
    return sum(map(_counts_as_ready, pods)) >= size


def _counts_as_ready(pod: Object) -> bool:
    return phase(pod) == "Succeeded" or is_ready(pod)


def reclaimable_pods(pods: list[Object]) -> dict[str, int]:
    """How many pods of each pod set of a group have succeeded, so that their quota is free."""
    counts: dict[str, int] = {}
    for pod in pods:
        if is_group(pod) and phase(pod) == "Succeeded":
            counts[_pod_set_of(pod)] = counts.get(_pod_set_of(pod), 0) + 1
    return counts


def needs_replacement(pods: list[Object], size: int) -> bool:
    """Whether failed pods of a group have no replacement yet."""
    is_failed = any(map(_has_failed, pods)) and is_group(pods[0])
    return is_failed and sum(not _has_failed(pod) for pod in pods) < size


def missing_owners(workload: Object, pods: list[Object]) -> list[Object]:
    """The references to pods that came later, such as replacements: the workload exists as long as one of its pods."""
    known = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
    return [owner_of(pod) for pod in pods if pod["metadata"]["uid"] not in known]


def owner_of(pod: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def is_gated(pod: Object) -> bool:
    return any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _has_failed(pod: Object) -> bool:
    return phase(pod) == "Failed"


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _annotations(pod: Object) -> Object:
    annotations: Object = pod["metadata"].get("annotations") or {}
    return annotations


def without_gate(pod: Object, name: str = names.ADMISSION_GATE) -> Object:
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != name]
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    return {**pod, "spec": {**spec, "schedulingGates": gates} if gates else spec}


def start_pod(pod: Object, infos: list[PodSetInfo]) -> Object:
    """The pod without the gate, with what the admission adds."""
    infos_by_name = {info.name: info for info in infos}
    info = infos_by_name.get(role_of(pod)) or infos_by_name[names.MAIN]
    template = apply_pod_set_info({"metadata": pod["metadata"], "spec": pod["spec"]}, info)
    return without_gate({**pod, **template})
