"""Reasons and messages of the scheduler and of evictions: kube-scheduler's own, and hints for the user."""

from __future__ import annotations

SCHEDULED, FAILED_SCHEDULING, UNSCHEDULABLE = "Scheduled", "FailedScheduling", "Unschedulable"

NODE_UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED_TAINT = "node(s) had untolerated taint(s)"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
NODE_PORTS = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
TOO_MANY_PODS = "Too many pods"
_INSUFFICIENT = "Insufficient "

NO_VICTIMS = "No preemption victims found for incoming pod"
PREEMPTION_NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_NODES = "no nodes available to schedule pods."

NO_NODES_HINT = "yard status shows whether the plane has a node, and what keeps it from being ready."
TOO_MANY_PODS_HINT = "Delete finished pods, or give the node a larger limit."
NODE_PORTS_HINT = "Leave out hostPort, or delete the pod that uses it."
CLAIM_HINT = "Create the claim, or a volume that it can bind to."
POD_AFFINITY_HINT = "Start the pods it wants to be near, or relax its podAffinity."
ANTI_AFFINITY_HINT = "Delete the pods it must not be near, or relax the podAntiAffinity."
NODE_AFFINITY_HINT = "Change the node affinity, or label a node so that it matches."

TAINT_MANAGER_EVICTION = "TaintManagerEviction"
DELETION_BY_TAINT_MANAGER = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
DELETION_BY_POD_GC = ("DeletionByPodGC", "PodGC: node no longer exists")


def assigned(namespace: str, name: str, node: str) -> str:
    return f"Successfully assigned {namespace}/{name} to {node}"


def insufficient(resource: str) -> str:
    return f"{_INSUFFICIENT}{resource}"


def insufficient_resource(reason: str) -> str:
    """The resource of an `insufficient` reason; empty for other reasons."""
    return reason.removeprefix(_INSUFFICIENT) if reason.startswith(_INSUFFICIENT) else ""


def is_claim_reason(reason: str) -> bool:
    return "persistentvolumeclaim" in reason.lower()


def nodes_unavailable(total: int, reasons: str, preemption: str) -> str:
    """The message of kube-scheduler 1.34, including its part about dynamic resources."""
    return (
        f"0/{total} nodes are available: {reasons}. no new claims to deallocate, "
        f"preemption: 0/{total} nodes are available: {preemption}."
    )


def gang_incomplete(existing: int, size: int) -> str:
    return f"gang has {existing} of {size} pods."


def gang_incomplete_hint(missing: int) -> str:
    return f"It starts when {missing} more are created."


def gang_does_not_fit(size: int, fits: int, message: str) -> str:
    return f"gang of {size} fits only {fits} at once: {message}"


def gang_pending(reason: str) -> str:
    return f"gang is pending: {reason}"


def uncordon_hint(node: str) -> str:
    return f"Allow pods again: kubectl uncordon {node}."


def taint_hint(key: str, value: str) -> str:
    return f"Add a toleration for the {{{key}: {value}}} taint, or remove it from the node."


def label_hint(node: str, pairs: str) -> str:
    return f"Label a node that should take it: kubectl label node {node} {pairs}."


def resource_missing_hint(resource: str) -> str:
    return f"No node has any {resource}: remove the request, or start the node on a machine that has it."


def request_too_large_hint(resource: str, largest: str, request: str) -> str:
    return f"No node has more than {largest} of {resource} in total: it requests {request}."


def resource_in_use_hint(resource: str, largest: str, request: str) -> str:
    return (
        f"It requests {request} of {resource}; other pods use too much of the {largest}: "
        "wait, delete a pod, or request less."
    )


def marked_for_deletion(pod: str) -> str:
    return f"Marking for deletion Pod {pod}"
