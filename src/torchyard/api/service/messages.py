"""Events about Services and host ports that the node cannot serve."""

from __future__ import annotations

REASON_PORT_NOT_SERVED = "PortNotServed"
REASON_CLUSTER_IP_NOT_SERVED = "ClusterIPNotServed"
CLUSTER_IP_NOT_SERVED = (
    "This machine has no network namespaces, so the cluster IP does not exist: use a headless Service, a node port or "
    "kubectl port-forward. yard doctor shows what is missing."
)


def port_not_served(protocol: str, address: str, port: int, reason: str) -> str:
    return (
        f"cannot listen on {protocol} port {port} of {address}: {reason}; choose another port, or end the program that "
        "uses it"
    )


def address_not_served(protocol: str, address: str, port: int, reason: str) -> str:
    return f"cannot listen on {protocol} port {port} of {address} in the network of the pods: {reason}"
