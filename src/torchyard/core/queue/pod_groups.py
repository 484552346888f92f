"""Pods that queue by themselves, alone or as a group: their workload, and what becomes of them. Pure."""

from __future__ import annotations

import hashlib

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.core.queue.integrations import PodSetInfo, injected
from torchyard.core.queue.requirements import shape_of


def is_managed(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(names.MANAGED) == "true"


def group_of(pod: Object) -> str:
    """The name of a pod's workload: its group's, or one of its own."""
    metadata = pod["metadata"]
    group = (metadata.get("labels") or {}).get(names.POD_GROUP)
    return str(group) if group else names.workload_name("Pod", "", metadata["name"], metadata["uid"])


def size_of(pods: list[Object]) -> int:
    """How many pods the group is to have. Raises where its members do not say."""
    said = {(one["metadata"].get("annotations") or {}).get(names.POD_GROUP_SIZE) for one in pods}
    if not (pods[0]["metadata"].get("labels") or {}).get(names.POD_GROUP):
        return 1
    text = said.pop() if len(said) == 1 else None
    if text is None or not text.isdigit():
        raise YardError(
            f"the pods of a group must agree on the annotation {names.POD_GROUP_SIZE}",
            hint="write the number of pods of the group into each of them",
        )
    return int(text)


def role_of(pod: Object) -> str:
    """Pods that ask for the same are one pod set."""
    shape = shape_of([{"name": names.MAIN, "count": 1, "template": {"spec": without_gate(pod)["spec"]}}]).shape
    return hashlib.sha1(shape.key, usedforsecurity=False).hexdigest()[:8]


def pod_sets(pods: list[Object]) -> list[Object]:
    by_role: dict[str, list[Object]] = {}
    for one in pods:
        by_role.setdefault(role_of(one), []).append(one)
    return [
        {
            "name": names.MAIN if len(by_role) == 1 else role,
            "count": len(members),
            "template": {"spec": without_gate(members[0])["spec"]},
        }
        for role, members in sorted(by_role.items())
    ]


def is_gated(pod: Object) -> bool:
    return any(one["name"] == names.ADMISSION_GATE for one in pod["spec"].get("schedulingGates") or ())


def has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def without_gate(pod: Object) -> Object:
    gates = [one for one in pod["spec"].get("schedulingGates") or () if one["name"] != names.ADMISSION_GATE]
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    return {**pod, "spec": {**spec, "schedulingGates": gates} if gates else spec}


def started(pod: Object, infos: list[PodSetInfo]) -> Object:
    """The pod with the gate taken away and the admission's wishes in it."""
    by_name = {one.name: one for one in infos}
    info = by_name.get(names.MAIN) or by_name[role_of(pod)]
    made = injected({"metadata": pod["metadata"], "spec": pod["spec"]}, info)
    return without_gate({**pod, **made})
