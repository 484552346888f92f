"""Defaults of namespaces, nodes, secrets and the small core kinds."""

from __future__ import annotations

import base64

from torchyard.api.compute_resources import canonical_list
from torchyard.api.objects import Object

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
# all fields of nodeInfo are written, even if they are empty
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def default_namespace(namespace: Object) -> None:
    """Label the namespace with its name, so that selectors can match it."""
    status = namespace.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Active"
    name = namespace["metadata"].get("name")
    if name:
        labels = namespace["metadata"].get("labels") or {}
        if labels.get(NAMESPACE_LABEL) != name:
            namespace["metadata"]["labels"] = {**labels, NAMESPACE_LABEL: name}


def default_node(node: Object) -> None:
    spec, status = node.setdefault("spec", {}), node.setdefault("status", {})
    canonical_list(status.get("capacity"))
    canonical_list(status.get("allocatable"))
    if status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])
    # podCIDR takes precedence over podCIDRs[0]
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if first and (not ranges or ranges[0] != first):
        spec["podCIDRs"] = [first]
    elif ranges and not first:
        spec["podCIDR"] = ranges[0]
    info = status.setdefault("nodeInfo", {})
    for name in _NODE_INFO:
        info.setdefault(name, "")
    endpoints = status.setdefault("daemonEndpoints", {})
    endpoints.setdefault("kubeletEndpoint", {}).setdefault("Port", 0)


def default_secret(secret: Object) -> None:
    """Merge the write-only `stringData` into `data`."""
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}
    if not secret.get("type"):
        secret["type"] = "Opaque"


def default_priority_class(priority_class: Object) -> None:
    if priority_class.get("preemptionPolicy") is None:
        priority_class["preemptionPolicy"] = "PreemptLowerPriority"


def default_runtime_class(runtime_class: Object) -> None:
    canonical_list((runtime_class.get("overhead") or {}).get("podFixed"))
