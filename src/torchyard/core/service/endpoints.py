"""The older Endpoints object of a service, which `kubectl describe service` and older clients still read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchyard.api.objects import Object
from torchyard.core.service.slices import HEADLESS, is_backend, is_ready, target_port

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
# Clients of slices see all; this object is cut, as upstream cuts it, and says so.
LIMIT = 1000

Port = tuple[str, int, str, str]  # name, number, protocol, appProtocol


def desired_endpoints(service: Object, pods: Iterable[Object]) -> Object:
    """The Endpoints a service with a selector should have."""
    metadata, spec = service["metadata"], service["spec"]
    labels = {**(metadata.get("labels") or {}), MANAGED_BY: MANAGER}
    labels.pop(HEADLESS, None)
    if spec.get("clusterIP") == "None":
        labels[HEADLESS] = ""
    behind = sorted((pod for pod in pods if _is_shown(service, pod)), key=lambda pod: str(pod["metadata"]["name"]))
    made: Object = {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels}}
    if len(behind) > LIMIT:
        made["metadata"]["annotations"] = {OVER_CAPACITY: "truncated"}
    subsets = _subsets(service, behind[:LIMIT])
    return {**made, "subsets": subsets} if subsets else made


def _is_shown(service: Object, pod: Object) -> bool:
    """Ending pods are left out, except where even pods that are not ready are published."""
    ending = bool(pod["metadata"].get("deletionTimestamp"))
    return is_backend(service, pod) and (not ending or bool(service["spec"].get("publishNotReadyAddresses")))


def _subsets(service: Object, pods: list[Object]) -> list[Object]:
    """Ports with the same pods behind them, and equally ready, share a subset."""
    behind: dict[Port, list[tuple[int, bool]]] = {}
    everybody = bool(service["spec"].get("publishNotReadyAddresses"))
    for number, pod in enumerate(pods):
        for port in _ports(service, pod):
            behind.setdefault(port, []).append((number, everybody or is_ready(pod)))
    shared: dict[tuple[tuple[int, bool], ...], list[Port]] = {}
    for port, found in behind.items():
        shared.setdefault(tuple(found), []).append(port)
    return [_subset(service, pods, found, ports) for found, ports in shared.items()]


def _subset(service: Object, pods: list[Object], found: Iterable[tuple[int, bool]], ports: list[Port]) -> Object:
    made: Object = {}
    for number, ready in found:
        made.setdefault("addresses" if ready else "notReadyAddresses", []).append(_address(service, pods[number]))
    listed = [_port(port) for port in sorted(ports) if port[1]]
    return {**made, "ports": listed} if listed else made


def _ports(service: Object, pod: Object) -> Iterator[Port]:
    """What of a service leads to this pod; a headless one without ports leads to the bare address."""
    ports = service["spec"].get("ports") or ()
    if not ports:
        yield "", 0, "", ""
    for port in ports:
        number = target_port(port, pod)
        if number is not None:
            yield port.get("name", ""), number, port.get("protocol", "TCP"), port.get("appProtocol", "")


def _port(port: Port) -> Object:
    name, number, protocol, application = port
    made: Object = {"port": number, "protocol": protocol}
    return {**({"name": name} if name else {}), **made, **({"appProtocol": application} if application else {})}


def _address(service: Object, pod: Object) -> Object:
    metadata, spec = pod["metadata"], pod["spec"]
    target = {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
    made: Object = {"ip": pod["status"]["podIP"], "targetRef": target}
    if spec.get("nodeName"):
        made["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        made["hostname"] = spec["hostname"]
    return made
