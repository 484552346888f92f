"""The objects that every cluster has from the start: namespaces, roles, priority classes, the `kubernetes` Service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import urlsplit

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.service.cidr import SERVICE_CIDR
from torchyard.apiserver.access.admission.node_taints import NOT_READY
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.bootstrap_policy import bootstrap_policy
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.registry.service_allocator import DEFAULT_CIDR, ServiceAllocator
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.update import change

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MANAGER = "kube-apiserver"
_SERVICE_ACCOUNTS = "serviceaccount-controller"
_PLURALS = {
    "Namespace": "namespaces",
    "ConfigMap": "configmaps",
    "Node": "nodes",
    "ServiceAccount": "serviceaccounts",
    "Service": "services",
    "ServiceCIDR": "servicecidrs",
    "EndpointSlice": "endpointslices",
    "Endpoints": "endpoints",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "PriorityClass": "priorityclasses",
    "CustomResourceDefinition": "customresourcedefinitions",
}


async def bootstrap(registry: Registry, user: User, *, url: str, objects: Iterable[Object] = ()) -> None:
    """Create missing objects. Existing ones are kept as they are, except the server's own Service and `objects`."""
    for name in NAMESPACES:
        await _ensure(registry, user, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if _SERVICE_ACCOUNTS in registry.controllers:
            # Pods need it, and clients are served before the controllers run.
            account = {"name": "default", "namespace": name}
            await _ensure(registry, user, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    await asyncio.gather(*(_ensure(registry, user, obj) for obj in [*_priorities(), *bootstrap_policy()]))
    await _ensure(registry, user, _service_cidr())
    await ensure_objects(registry, user, [*_kubernetes_service(registry, url), *objects])


async def ensure_node(registry: Registry, user: User, name: str) -> None:
    """Create the Node of a plane that has none yet, not ready, so that clients can wait for it.

    Its agent, which starts later, reports the conditions and everything else.
    """
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"taints": [dict(NOT_READY)]},
    }
    await _ensure(registry, user, node)


async def ensure_objects(registry: Registry, user: User, objects: Iterable[Object]) -> None:
    """Create or update objects that belong to this program. Requests are answered between two of them."""
    for obj in objects:
        # A copy: defaulting changes the object in place, and definitions are shared.
        await _ensure(registry, user, orjson.loads(orjson.dumps(obj)), update=True)
        await asyncio.sleep(0)


def has_objects(registry: Registry, objects: Iterable[Object]) -> bool:
    """Whether all of them exist, in whatever state."""
    return all(registry.store.get(_key(registry, obj)) is not None for obj in objects)


def _key(registry: Registry, obj: Object) -> str:
    resource, metadata = _resource(registry, obj), obj["metadata"]
    return registry.key(resource, metadata.get("namespace", ""), metadata["name"])


def _resource(registry: Registry, obj: Object) -> Resource:
    group, _, version = obj["apiVersion"].rpartition("/")
    resource = registry.catalog.find(group, version, _PLURALS[obj["kind"]])
    if resource is None:
        raise errors.internal(f"{obj['apiVersion']} {obj['kind']} is not served")
    return resource


async def _ensure(registry: Registry, user: User, obj: Object, *, update: bool = False) -> None:
    """Create an object; with `update`, also update an existing one."""
    resource, metadata = _resource(registry, obj), obj["metadata"]
    namespace = metadata.get("namespace", "")
    if registry.store.get(_key(registry, obj)) is not None:
        if update:
            ctx = RequestContext(
                resource, "update", namespace, metadata["name"], user, registry.clock(), manager=_MANAGER, trusted=True
            )
            await change(registry, ctx, lambda old: {**old, **obj, "metadata": {**old["metadata"], **metadata}})
        return
    ctx = RequestContext(resource, "create", namespace, "", user, registry.clock(), manager=_MANAGER, trusted=True)
    try:
        await create(registry, ctx, {**obj, "metadata": dict(metadata)})
    except StatusError as error:
        if error.status != 409:
            raise


def _priorities() -> list[Object]:
    """The two classes of system components (upstream's scheduling bootstrap)."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        }
        for name, value, description in (
            ("system-node-critical", 2000001000, "For pods a node cannot do without; they are never moved away."),
            ("system-cluster-critical", 2000000000, "For pods the cluster cannot do without; they may be moved."),
        )
    ]


def _service_cidr() -> Object:
    """The range of the server's own allocator; a controller sets its condition."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": DEFAULT_CIDR},
        "spec": {"cidrs": [SERVICE_CIDR]},
    }


def _kubernetes_service(registry: Registry, url: str) -> list[Object]:
    """The Service through which pods reach the API server, and its endpoints."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 443
    allocator = registry.allocators[("", "services")]
    assert isinstance(allocator, ServiceAllocator)
    metadata = {"name": "kubernetes", "namespace": "default"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": allocator.first_ip,
            "clusterIPs": [allocator.first_ip],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    }
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {**metadata, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    }
    endpoint_slice = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in host else "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    return [service, endpoints, endpoint_slice]
