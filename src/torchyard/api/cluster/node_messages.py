"""Reasons and messages that a node writes about itself. Those of the kubelet are the kubelet's, letter for letter."""

from __future__ import annotations

REASON_STARTING = "Starting"
STARTING = "Starting the node agent."

# Conditions: (reason, message) when the status is True, and when it is False.
MEMORY_PRESSURE = (
    ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
)
DISK_PRESSURE = (
    ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
)
PID_PRESSURE = (
    ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
# Reasons of events about a node, for each value of a condition.
EVENT_REASONS = {
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
}
READY = ("KubeletReady", "kubelet is posting ready status")
PODS_ISOLATED = ("Namespaces", "pods run in namespaces of their own")
REASON_NOT_ISOLATED = "NoNamespaces"
REASON_LIMITS_ENFORCED, REASON_LIMITS_NOT_ENFORCED = "Cgroups", "NoCgroups"


def status_is_now(node: str, reason: str) -> str:
    return f"Node {node} status is now: {reason}"


def not_isolated(missing: str) -> str:
    return f"pods are not isolated from the machine: {missing}"


REASON_PODS_NOT_ROUTED = "PodsNotRouted"
PODS_NOT_ROUTED_HINT = (
    "it needs root, network namespaces, and addresses that nothing else on the machine uses; node ports, "
    "kubectl port-forward and services/proxy need none of them"
)
ROUTES_NEED_ROOT = "only root can change the routes of the machine"
ROUTES_NEED_NODE = "a plane without a node has no pods"
NO_POD_NETWORK = "the pods of this plane have no network of their own"
ROUTED_BY_OTHER_PLANE = "another plane of this machine has the routes"


def pods_not_routed(reason: str) -> str:
    return f"--route-pods: the machine does not reach the addresses of pods and Services: {reason}"


def route_taken(route: str) -> str:
    return f"the machine uses the addresses already, by the route {route}"
