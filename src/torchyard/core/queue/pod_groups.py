"""Plain pods that are queued alone or as a pod group: their workload, and how they are started. Pure."""

from __future__ import annotations

import hashlib

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import job_messages, names
from torchyard.core.queue.integrations import PodSetInfo, apply_pod_set_info
from torchyard.core.queue.requirements import intern_pod_sets


def workload_name_of(pod: Object) -> str:
    """The name of a pod's workload: its group's name, or a generated one."""
    metadata = pod["metadata"]
    group = (metadata.get("labels") or {}).get(names.POD_GROUP)
    return str(group) if group else names.workload_name("Pod", "", metadata["name"], metadata["uid"])


def group_size(pods: list[Object]) -> int:
    """How many pods the group has when it is complete. Raises `YardError` if the pods do not agree on it."""
    if not (pods[0]["metadata"].get("labels") or {}).get(names.POD_GROUP):
        return 1
    sizes = {(pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_SIZE) for pod in pods}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None or not size.isdigit():
        raise YardError(job_messages.POD_GROUP_SIZE_ERROR, hint=job_messages.POD_GROUP_SIZE_HINT)
    return int(size)


def role_of(pod: Object) -> str:
    """The name of a pod's pod set: pods with the same requirements form one."""
    pod_set = {"name": names.MAIN, "count": 1, "template": {"spec": without_gate(pod)["spec"]}}
    requirements = intern_pod_sets([pod_set]).requirements
    return hashlib.sha1(requirements.key, usedforsecurity=False).hexdigest()[:8]


def pod_sets(pods: list[Object]) -> list[Object]:
    by_role: dict[str, list[Object]] = {}
    for pod in pods:
        by_role.setdefault(role_of(pod), []).append(pod)
    return [
        {
            "name": names.MAIN if len(by_role) == 1 else role,
            "count": len(members),
            "template": {"spec": without_gate(members[0])["spec"]},
        }
        for role, members in sorted(by_role.items())
    ]


def is_gated(pod: Object) -> bool:
    return any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())


def is_terminated(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def without_gate(pod: Object, name: str = names.ADMISSION_GATE) -> Object:
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != name]
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    return {**pod, "spec": {**spec, "schedulingGates": gates} if gates else spec}


def start_pod(pod: Object, infos: list[PodSetInfo]) -> Object:
    """The pod without the gate, with what the admission adds."""
    infos_by_name = {info.name: info for info in infos}
    info = infos_by_name.get(names.MAIN) or infos_by_name[role_of(pod)]
    template = apply_pod_set_info({"metadata": pod["metadata"], "spec": pod["spec"]}, info)
    return without_gate({**pod, **template})
