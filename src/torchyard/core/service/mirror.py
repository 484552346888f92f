"""EndpointSlices that mirror the Endpoints that users write for Services without a selector. Pure."""

from __future__ import annotations

import hashlib
import json

from torchyard.api.objects import Object
from torchyard.core.service.slices import MANAGED_BY, SERVICE_NAME

MIRROR_MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_OWN_ANNOTATIONS = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
# The most addresses of a subset that are mirrored, as upstream.
MAX_ENDPOINTS = 1000


def is_mirrored(endpoints: Object | None, service: Object | None) -> bool:
    """Whether the Endpoints are a user's: neither written by a controller nor a lock for leader election."""
    if endpoints is None or service is None or service["spec"].get("selector"):
        return False
    metadata = endpoints["metadata"]
    if metadata.get("deletionTimestamp") or _LEADER in (metadata.get("annotations") or {}):
        return False
    return (metadata.get("labels") or {}).get(SKIP_MIRROR) != "true"


def mirrored_slices(endpoints: Object) -> list[Object]:
    """One slice for each address family and list of ports; subsets with the same ports share it."""
    groups: dict[tuple[str, str], tuple[list[Object], dict[str, Object]]] = {}  # ports, and endpoints by address
    for subset in endpoints.get("subsets") or ():
        addresses = [
            *((address, True) for address in subset.get("addresses") or ()),
            *((address, False) for address in subset.get("notReadyAddresses") or ()),
        ][:MAX_ENDPOINTS]
        ports = _ports(subset)
        identity = json.dumps(sorted(json.dumps(port, sort_keys=True) for port in ports))
        for address, ready in addresses:
            _, own = groups.setdefault((_family(address["ip"]), identity), (ports, {}))
            own.setdefault(json.dumps(address, sort_keys=True), _endpoint(address, ready=ready))
    return [_slice(endpoints, family, list(own.values()), ports) for (family, _), (ports, own) in groups.items()]


def _ports(subset: Object) -> list[Object]:
    return [
        {
            "name": port.get("name") or "",
            "port": port["port"],
            "protocol": port.get("protocol") or "TCP",
            **({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {}),
        }
        for port in subset.get("ports") or ()
    ]


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _endpoint(address: Object, *, ready: bool) -> Object:
    endpoint: Object = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    return endpoint | {name: address[name] for name in ("hostname", "nodeName", "targetRef") if address.get(name)}


def _slice(endpoints: Object, family: str, own: list[Object], ports: list[Object]) -> Object:
    metadata = endpoints["metadata"]
    identity = json.dumps([metadata["uid"], family, ports], sort_keys=True)
    annotations = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name not in _OWN_ANNOTATIONS
    }
    owner = {"apiVersion": "v1", "kind": "Endpoints", "name": metadata["name"], "uid": metadata["uid"]}
    slice_metadata: Object = {
        "name": f"{metadata['name'][:240]}-{hashlib.sha256(identity.encode()).hexdigest()[:5]}",
        "namespace": metadata["namespace"],
        "labels": {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: MIRROR_MANAGER},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    if annotations:
        slice_metadata["annotations"] = annotations
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": slice_metadata,
        "addressType": family,
        "endpoints": own,
        "ports": ports,
    }
