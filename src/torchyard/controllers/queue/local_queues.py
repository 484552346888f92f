"""Conveniences of the one-machine plane: a ClusterQueue from what the machine has, and queues in every namespace.

Everything made here carries a label, is told by an event, and is left alone once somebody removes that label.
"""

from __future__ import annotations

import re
from typing import Any

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NODES
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.refs import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from torchyard.controllers.queue.stores import State
from torchyard.core.queue.resources import milli, shown
from torchyard.kube.informer import Informer, Key
from torchyard.kube.informer_factory import InformerFactory

QUEUE, FLAVOR = "local", "default-flavor"
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_GPU, _PRODUCT = "nvidia.com/", "nvidia.com/gpu.product"
_MACHINE: Key = ("", "")
_SWITCH = "turn this off with `yard up --no-local-queues`"


class LocalQueues:
    def __init__(self, state: State, informers: InformerFactory) -> None:
        self._state, self._client = state, state.client
        self._nodes = informers.for_resource(NODES)
        self._flavors = informers.for_resource(FLAVORS)
        self.recorder = state.recorder(messages.CONVENIENCES)
        sources: list[Informer] = [self._nodes, *state.informers]
        self._controller = Controller("local-queues", self._reconcile, sources, workers=1)
        self._nodes.on_change(lambda *_: self._controller.queue.add(_MACHINE))
        state.namespaces.on_change(
            lambda _change, obj, _before: self._controller.queue.add(("", obj["metadata"]["name"]))
        )

    async def run(self) -> None:
        await self._controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        if key == _MACHINE:
            nodes = self._nodes.all()
            if nodes:
                flavors, queue = wanted(nodes)
                for one in flavors:
                    await self._keep(FLAVORS, self._flavors, one)
                await self._keep(CLUSTER_QUEUES, self._state.cluster_queues, queue)
        elif self._nodes.all():
            await self._open(key[1])
        else:
            return 1.0  # the machine comes first
        return None

    async def _open(self, namespace: str) -> None:
        found = self._state.namespaces.get("", namespace)
        is_going = found is None or (found.get("status") or {}).get("phase") == "Terminating"
        if is_going or namespace.startswith("kube-"):
            return
        for name in (names.DEFAULT_QUEUE, names.user_queue(namespace)):
            metadata = {"name": name, "namespace": namespace, "labels": {names.LOCAL: "true"}}
            spec = {"clusterQueue": QUEUE}
            queue = {
                "apiVersion": names.API_VERSION,
                "kind": names.LOCAL_QUEUE.kind,
                "metadata": metadata,
                "spec": spec,
            }
            await self._keep(LOCAL_QUEUES, self._state.local_queues, queue)

    async def _keep(self, ref: GroupVersionResource, informer: Informer, obj: Object) -> None:
        metadata = obj["metadata"]
        there = informer.get(metadata.get("namespace", ""), metadata["name"])
        if there is None:
            try:
                made = await self._client.create(ref, obj)
            except StatusError as error:
                if error.reason == "AlreadyExists" or error.status in (403, 404):  # or its namespace is going
                    return
                raise
            if ref is not FLAVORS:
                said = f"{obj['kind']} {metadata['name']} was made for this machine; {_SWITCH}"
                self.recorder.event({**made, "kind": obj["kind"]}, "Normal", messages.QUEUE_MADE, said)
        elif names.LOCAL in (there["metadata"].get("labels") or {}) and ref is CLUSTER_QUEUES:
            groups = obj["spec"]["resourceGroups"]
            if there["spec"].get("resourceGroups") != groups:
                await self._client.patch(ref, metadata["name"], {"spec": {"resourceGroups": groups}})


def wanted(nodes: list[Object]) -> tuple[list[Object], Object]:
    """The flavors and the queue of these nodes: one flavor for what every machine has, one for each kind of GPU."""
    plain = {name: _sum(nodes, name) for name in _PLAIN}
    flavors = [_flavor(FLAVOR, {})]
    groups = [_group([(FLAVOR, plain)])]
    devices: dict[str, tuple[str, dict[str, int]]] = {}
    resources = sorted({name for node in nodes for name in _allocatable(node) if name.startswith(_GPU)})
    for node in nodes:
        product = (node["metadata"].get("labels") or {}).get(_PRODUCT)
        if resources and product:
            name = "gpu-" + re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia-")).strip("-")
            held = devices.setdefault(name, (product, dict.fromkeys(resources, 0)))[1]
            for resource in resources:
                held[resource] += int(_allocatable(node).get(resource, "0"))
    if devices:
        flavors += [_flavor(name, {_PRODUCT: product}) for name, (product, _) in sorted(devices.items())]
        groups.append(_group([(name, held) for name, (_, held) in sorted(devices.items())]))
    spec = {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": names.LOWER},
    }
    metadata = {"name": QUEUE, "labels": {names.LOCAL: "true"}}
    queue = {"apiVersion": names.API_VERSION, "kind": names.CLUSTER_QUEUE.kind, "metadata": metadata, "spec": spec}
    return flavors, queue


def _allocatable(node: Object) -> dict[str, str]:
    return (node.get("status") or {}).get("allocatable") or {}


def _sum(nodes: list[Object], resource: str) -> str | int:
    """One machine's amount as it says it; several are added up."""
    return shown(resource, sum(milli(_allocatable(node).get(resource, "0")) for node in nodes))


def _flavor(name: str, labels: dict[str, str]) -> Object:
    metadata = {"name": name, "labels": {names.LOCAL: "true"}}
    spec = {"nodeLabels": labels} if labels else {}
    return {"apiVersion": names.API_VERSION, "kind": names.FLAVOR.kind, "metadata": metadata, "spec": spec}


def _group(flavors: list[tuple[str, Any]]) -> Object:
    return {
        "coveredResources": list(flavors[0][1]),
        "flavors": [
            {"name": name, "resources": [{"name": key, "nominalQuota": str(amount)} for key, amount in held.items()]}
            for name, held in flavors
        ],
    }
