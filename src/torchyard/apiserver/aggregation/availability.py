"""The checks behind the condition `Available` of an APIService. Pure; reasons and messages are kube-aggregator's."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.apiserver.aggregation.api_services import AVAILABLE
from torchyard.apiserver.aggregation.backend import DEFAULT_PORT
from torchyard.apiserver.service_network.resolver import SERVICE_NAME, ServiceLister


class Availability(NamedTuple):
    is_available: bool
    reason: str
    message: str


LOCAL = Availability(True, "Local", "Local APIServices are always available")
PASSED = Availability(True, "Passed", "all checks passed")


def failed_discovery(url: str, problem: str) -> Availability:
    message = f"failing or missing response from {url}: {problem}"
    return Availability(False, "FailedDiscoveryCheck", message)


def check_service(api_service: Object, lister: ServiceLister) -> Availability | None:
    """What is wrong with the Service of an APIService; None if its server may be asked."""
    reference = api_service["spec"]["service"]
    namespace, name = reference.get("namespace") or "", reference.get("name") or ""
    port = reference.get("port") or DEFAULT_PORT
    shown = f'service/{name} in "{namespace}"'
    service = lister.get("", "services", namespace, name)
    if service is None:
        return Availability(False, "ServiceNotFound", f"{shown} is not present")
    spec = service["spec"]
    if (spec.get("type") or "ClusterIP") != "ClusterIP":
        return None
    service_port = next((each for each in spec.get("ports") or () if each["port"] == port), None)
    if service_port is None:
        return Availability(False, "ServicePortError", f"{shown} is not listening on port {port}")
    slices = [
        each
        for each in lister.list("discovery.k8s.io", "endpointslices", namespace)
        if (each["metadata"].get("labels") or {}).get(SERVICE_NAME) == name
    ]
    if not slices:
        return Availability(False, "EndpointsNotFound", f"cannot find endpointslices for {shown}")
    port_name = service_port.get("name") or ""
    if not any(_has_addresses(each, port_name) for each in slices):
        message = f'endpointslices for {shown} have no addresses with port name "{port_name}"'
        return Availability(False, "MissingEndpoints", message)
    return None


def _has_addresses(endpoint_slice: Object, port_name: str) -> bool:
    has_port = any((port.get("name") or "") == port_name for port in endpoint_slice.get("ports") or ())
    is_ready = any(
        (endpoint.get("conditions") or {}).get("ready", True) is not False and endpoint.get("addresses")
        for endpoint in endpoint_slice.get("endpoints") or ()
    )
    return has_port and is_ready


def with_condition(api_service: Object, result: Availability, now: str) -> Object:
    """The APIService with its condition. The time changes only with the condition's status."""
    status = api_service.get("status") or {}
    others = [each for each in status.get("conditions") or () if each["type"] != AVAILABLE]
    before = next((each for each in status.get("conditions") or () if each["type"] == AVAILABLE), None)
    value = "True" if result.is_available else "False"
    since = before["lastTransitionTime"] if before is not None and before["status"] == value else now
    condition = {
        "type": AVAILABLE,
        "status": value,
        "lastTransitionTime": since,
        "reason": result.reason,
        "message": result.message,
    }
    return {**api_service, "status": {**status, "conditions": [*others, condition]}}
