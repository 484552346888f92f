"""The plane's own queues: a ClusterQueue with the resources of the machine, and LocalQueues in every namespace.

Every object that is created here has a label and an event. Once a user removes the label, it is left alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NODES
from torchyard.api.objects import Object
from torchyard.api.queue import names, queue_messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.resources import format_quantity, to_milli
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informer_factory import InformerFactory

QUEUE, FLAVOR = "local", "default-flavor"
_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_GPU_PREFIX, _GPU_PRODUCT = "nvidia.com/", "nvidia.com/gpu.product"
_MACHINE: Key = ("", "")
_RETRY_WITHOUT_NODE = 1.0  # seconds


class LocalQueueProvisioner:
    def __init__(self, store: QueueStore, informers: InformerFactory) -> None:
        self._store, self._client = store, store.client
        self._nodes = informers.for_resource(NODES)
        self._flavors = informers.for_resource(FLAVORS)
        self.recorder = store.new_recorder(queue_messages.COMPONENT_LOCAL_QUEUES)
        sources: list[Informer] = [self._nodes, *store.informers]
        self._controller = Controller("local-queues", self._reconcile, sources, workers=1)
        self._nodes.on_change(lambda *_: self._controller.queue.add(_MACHINE))
        store.namespaces.on_change(
            lambda _change, obj, _before: self._controller.queue.add(("", obj["metadata"]["name"]))
        )

    async def run(self) -> None:
        await self._controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        nodes = self._nodes.all()
        if key != _MACHINE:
            if not nodes:
                return _RETRY_WITHOUT_NODE
            await self._provision_namespace(key[1])
        elif nodes:
            machine = machine_queue(nodes)
            for flavor in machine.flavors:
                await self._ensure(FLAVORS, self._flavors, flavor)
            await self._ensure(CLUSTER_QUEUES, self._store.cluster_queues, machine.cluster_queue)
        return None

    async def _provision_namespace(self, namespace: str) -> None:
        obj = self._store.namespaces.get("", namespace)
        is_terminating = obj is None or (obj.get("status") or {}).get("phase") == "Terminating"
        if is_terminating or namespace.startswith("kube-"):
            return
        for name in (names.DEFAULT_QUEUE, names.user_queue(namespace)):
            local_queue = {
                "apiVersion": names.API_VERSION,
                "kind": names.LOCAL_QUEUE.kind,
                "metadata": {"name": name, "namespace": namespace, "labels": {names.LOCAL: "true"}},
                "spec": {"clusterQueue": QUEUE},
            }
            await self._ensure(LOCAL_QUEUES, self._store.local_queues, local_queue)

    async def _ensure(self, gvr: GroupVersionResource, informer: Informer, obj: Object) -> None:
        """Create an object, or update the quota of the ClusterQueue that was created here."""
        metadata = obj["metadata"]
        existing = informer.get(metadata.get("namespace", ""), metadata["name"])
        if existing is None:
            try:
                created = await self._client.create(gvr, obj)
            except StatusError as error:
                if error.reason == "AlreadyExists" or error.status in (403, 404):  # or its namespace is terminating
                    return
                raise
            if gvr is not FLAVORS:
                message = queue_messages.local_queue_created(obj["kind"], metadata["name"])
                reference = {**created, "kind": obj["kind"]}
                self.recorder.event(reference, "Normal", queue_messages.EVENT_LOCAL_QUEUE_CREATED, message)
        elif names.LOCAL in (existing["metadata"].get("labels") or {}) and gvr is CLUSTER_QUEUES:
            groups = obj["spec"]["resourceGroups"]
            if existing["spec"].get("resourceGroups") != groups:
                await self._client.patch(gvr, metadata["name"], {"spec": {"resourceGroups": groups}})


class MachineQueue(NamedTuple):
    flavors: list[Object]
    cluster_queue: Object


class _GpuFlavor(NamedTuple):
    product: str
    quota: dict[str, int]


def machine_queue(nodes: list[Object]) -> MachineQueue:
    """One flavor for the resources that every machine has, and one for each GPU product."""
    base = {resource: _sum_allocatable(nodes, resource) for resource in _BASE_RESOURCES}
    flavors = [_flavor(FLAVOR, {})]
    groups = [_resource_group({FLAVOR: base})]
    gpus = _gpu_flavors(nodes)
    if gpus:
        flavors += [_flavor(name, {_GPU_PRODUCT: gpu.product}) for name, gpu in gpus.items()]
        groups.append(
            _resource_group({name: {key: str(count) for key, count in gpu.quota.items()} for name, gpu in gpus.items()})
        )
    cluster_queue = {
        "apiVersion": names.API_VERSION,
        "kind": names.CLUSTER_QUEUE.kind,
        "metadata": {"name": QUEUE, "labels": {names.LOCAL: "true"}},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": {"withinClusterQueue": names.LOWER},
        },
    }
    return MachineQueue(flavors, cluster_queue)


def _gpu_flavors(nodes: list[Object]) -> dict[str, _GpuFlavor]:
    resources = sorted({name for node in nodes for name in _allocatable(node) if name.startswith(_GPU_PREFIX)})
    gpus: dict[str, _GpuFlavor] = {}
    for node in nodes:
        product = (node["metadata"].get("labels") or {}).get(_GPU_PRODUCT)
        if resources and product:
            name = "gpu-" + re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia-")).strip("-")
            quota = gpus.setdefault(name, _GpuFlavor(product, dict.fromkeys(resources, 0))).quota
            for resource in resources:
                quota[resource] += int(_allocatable(node).get(resource, "0"))
    return dict(sorted(gpus.items()))


def _allocatable(node: Object) -> dict[str, str]:
    return (node.get("status") or {}).get("allocatable") or {}


def _sum_allocatable(nodes: list[Object], resource: str) -> str:
    return format_quantity(resource, sum(to_milli(_allocatable(node).get(resource, "0")) for node in nodes))


def _flavor(name: str, node_labels: dict[str, str]) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.FLAVOR.kind,
        "metadata": {"name": name, "labels": {names.LOCAL: "true"}},
        "spec": {"nodeLabels": node_labels} if node_labels else {},
    }


def _resource_group(quotas: dict[str, dict[str, str]]) -> Object:
    """`quotas`: by flavor and resource."""
    covered = next(iter(quotas.values()))
    return {
        "coveredResources": list(covered),
        "flavors": [
            {"name": flavor, "resources": [{"name": key, "nominalQuota": amount} for key, amount in quota.items()]}
            for flavor, quota in quotas.items()
        ],
    }
