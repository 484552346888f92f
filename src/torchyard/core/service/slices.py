"""EndpointSlices of a service, from the pods that it selects. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY, MANAGER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
# The most endpoints in a slice (upstream's limit); a service with more pods has several slices.
SLICE_SIZE = 1000


def has_slices(service: Object) -> bool:
    """Whether the controller manages the slices of a service: without a selector they are the user's."""
    spec = service["spec"]
    return bool(spec.get("selector")) and spec.get("type") != "ExternalName"


def desired_slices(service: Object, pods: Iterable[Object]) -> list[Object]:
    """The slices of a service; a service without pods has one empty slice."""
    backends = sorted((pod for pod in pods if is_backend(service, pod)), key=lambda pod: str(pod["metadata"]["name"]))
    alike: dict[str, list[Object]] = {}  # pods whose ports have the same numbers, in the order of their names
    for pod in backends:
        alike.setdefault(json.dumps(list(_ports(service, pod))), []).append(pod)
    chunks = [
        (json.loads(ports), members[start : start + SLICE_SIZE])
        for ports, members in alike.items()
        for start in range(0, len(members), SLICE_SIZE)
    ]
    return [_slice(service, members, ports, number) for number, (ports, members) in enumerate(chunks or [([], [])])]


def is_backend(service: Object, pod: Object) -> bool:
    labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
    if not status.get("podIP") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    return all(labels.get(key) == value for key, value in service["spec"]["selector"].items())


def _slice(service: Object, pods: list[Object], ports: list[Object], number: int) -> Object:
    metadata, spec = service["metadata"], service["spec"]
    suffix = hashlib.sha256(f"{metadata['uid']}/{number}".encode()).hexdigest()[:5]
    labels = {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: MANAGER}
    if spec.get("clusterIP") == "None":
        labels[HEADLESS] = ""
    owner = controller_reference(service, "v1", "Service")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{metadata['name'][:240]}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        },
        "addressType": (spec.get("ipFamilies") or ["IPv4"])[0],
        "endpoints": [_endpoint(service, pod) for pod in pods],
        "ports": ports,
    }


def _endpoint(service: Object, pod: Object) -> Object:
    metadata, spec = pod["metadata"], pod["spec"]
    terminating = bool(metadata.get("deletionTimestamp"))
    serving = is_ready(pod) or bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: Object = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serving and not terminating, "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
    if spec.get("nodeName"):
        endpoint["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        endpoint["hostname"] = spec["hostname"]
    return endpoint


def _ports(service: Object, pod: Object) -> Iterator[Object]:
    """The ports of a service at one pod. A named target port that the pod does not have is left out."""
    for port in service["spec"].get("ports") or ():
        number = target_port(port, pod)
        if number is not None:
            slice_port = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
            yield slice_port | ({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})


def target_port(port: Object, pod: Object) -> int | None:
    """The container port behind a service port; None if the pod has no port of that name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    named = (
        container_port["containerPort"]
        for container in pod["spec"]["containers"]
        for container_port in container.get("ports") or ()
        if container_port.get("name") == target
    )
    return next(named, None)
