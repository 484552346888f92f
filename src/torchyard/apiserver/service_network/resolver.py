"""From a Service's port to the address of one of its ready endpoints.

Admission webhooks, conversion webhooks and aggregated APIs all name a Service. kube-apiserver calls its cluster IP;
here the endpoint is chosen at once, as kube-proxy would, because the API server is not in the pods' network. The
messages are kube-apiserver's.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Protocol

from torchyard.api.objects import Object

SERVICE_NAME = "kubernetes.io/service-name"


class ServiceLister(Protocol):
    """The Services and EndpointSlices of the cluster."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None: ...

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Object]: ...


class NoReadyEndpoint(ConnectionRefusedError):
    """A Service without ready endpoints. Its cluster IP refuses connections."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(f"dial tcp {address}:{port}: connect: connection refused")


class ServiceResolver:
    def __init__(self, lister: ServiceLister) -> None:
        self._lister = lister

    async def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """The address and port to connect to. Raises LookupError, or ConnectionRefusedError without ready endpoints."""
        service = self._lister.get("", "services", namespace, name)
        if service is None:
            raise LookupError(f'service "{name}" not found')
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return str(spec["externalName"]), port
        if spec.get("clusterIP") == "None":
            raise LookupError('cannot route to service with ClusterIP "None"')
        service_port = next((each for each in spec.get("ports") or () if each["port"] == port), None)
        if service_port is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        endpoints = ready_endpoints(self._slices(namespace, name), service_port.get("name") or "")
        if not endpoints:
            raise NoReadyEndpoint(spec.get("clusterIP") or "", port)
        return random.choice(endpoints)

    def _slices(self, namespace: str, name: str) -> Iterable[Object]:
        for endpoint_slice in self._lister.list("discovery.k8s.io", "endpointslices", namespace):
            if (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE_NAME) == name:
                yield endpoint_slice


def ready_endpoints(slices: Iterable[Object], port_name: str) -> list[tuple[str, int]]:
    """The addresses and ports behind a Service's TCP port, which slices know by its name."""
    return [
        (str(endpoint["addresses"][0]), int(port["port"]))
        for endpoint_slice in slices
        if endpoint_slice.get("addressType") != "FQDN"  # as kube-proxy, which does not resolve names
        for port in endpoint_slice.get("ports") or ()
        if (port.get("name") or "") == port_name and port.get("port") and (port.get("protocol") or "TCP") == "TCP"
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready", True) is not False and endpoint.get("addresses")
    ]
