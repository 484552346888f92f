"""The older Endpoints object of a service, which `kubectl describe service` and older clients read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.core.service.slices import HEADLESS, is_backend, target_port

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
# Upstream's limit. A truncated object has an annotation; EndpointSlices hold every pod.
LIMIT = 1000

Port = tuple[str, int, str, str]  # name, number, protocol, appProtocol


def desired_endpoints(service: Object, pods: Iterable[Object]) -> Object:
    """The Endpoints a service with a selector should have."""
    metadata, spec = service["metadata"], service["spec"]
    labels = {**(metadata.get("labels") or {}), MANAGED_BY: MANAGER}
    labels.pop(HEADLESS, None)
    if spec.get("clusterIP") == "None":
        labels[HEADLESS] = ""
    backends = sorted(
        (pod for pod in pods if _is_published(service, pod)), key=lambda pod: str(pod["metadata"]["name"])
    )
    endpoints: Object = {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels}}
    if len(backends) > LIMIT:
        endpoints["metadata"]["annotations"] = {OVER_CAPACITY: "truncated"}
    subsets = _subsets(service, backends[:LIMIT])
    return {**endpoints, "subsets": subsets} if subsets else endpoints


def _is_published(service: Object, pod: Object) -> bool:
    """Terminating pods are left out, unless even unready pods are published."""
    ending = bool(pod["metadata"].get("deletionTimestamp"))
    return is_backend(service, pod) and (not ending or bool(service["spec"].get("publishNotReadyAddresses")))


def _subsets(service: Object, pods: list[Object]) -> list[Object]:
    """Ports with the same pods, equally ready, share a subset."""
    backends: dict[Port, list[tuple[int, bool]]] = {}
    all_ready = bool(service["spec"].get("publishNotReadyAddresses"))
    for number, pod in enumerate(pods):
        for port in _ports(service, pod):
            backends.setdefault(port, []).append((number, all_ready or is_ready(pod)))
    shared: dict[tuple[tuple[int, bool], ...], list[Port]] = {}
    for port, members in backends.items():
        shared.setdefault(tuple(members), []).append(port)
    return [_subset(service, pods, members, ports) for members, ports in shared.items()]


def _subset(service: Object, pods: list[Object], members: Iterable[tuple[int, bool]], ports: list[Port]) -> Object:
    subset: Object = {}
    for number, ready in members:
        subset.setdefault("addresses" if ready else "notReadyAddresses", []).append(_address(service, pods[number]))
    listed = [_port(port) for port in sorted(ports) if port[1]]
    return {**subset, "ports": listed} if listed else subset


def _ports(service: Object, pod: Object) -> Iterator[Port]:
    """The ports of a service that lead to this pod. A headless service without ports leads to the address alone."""
    ports = service["spec"].get("ports") or ()
    if not ports:
        yield "", 0, "", ""
    for port in ports:
        number = target_port(port, pod)
        if number is not None:
            yield port.get("name", ""), number, port.get("protocol", "TCP"), port.get("appProtocol", "")


def _port(port: Port) -> Object:
    name, number, protocol, application = port
    endpoint_port: Object = {"port": number, "protocol": protocol}
    return {
        **({"name": name} if name else {}),
        **endpoint_port,
        **({"appProtocol": application} if application else {}),
    }


def _address(service: Object, pod: Object) -> Object:
    metadata, spec = pod["metadata"], pod["spec"]
    target = {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
    address: Object = {"ip": pod["status"]["podIP"], "targetRef": target}
    if spec.get("nodeName"):
        address["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        address["hostname"] = spec["hostname"]
    return address
