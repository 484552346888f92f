"""Nodes without heartbeats and deleted nodes, and their pods, on a plane and on a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from tests.controllers.conftest import Cluster
from tests.support.effort import FULL

from torchyard.api.gvr import LEASES, NODES, PODS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.api.times import to_rfc3339_micro
from torchyard.controllers.node_lifecycle import NodeLifecycleController
from torchyard.controllers.pod_eviction import PodGarbageCollector, TaintEvictionController
from torchyard.kube.informer_factory import InformerFactory

AT_ONCE = [
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
]
NEVER = [{"operator": "Exists"}]


@pytest.fixture
async def hurried(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Our controllers with short periods, next to the plane's. A real cluster's periods cannot be changed."""
    if cluster.server is not None:
        if not FULL:
            pytest.skip("a real cluster takes its time with silent nodes; TORCHYARD_TESTS=full waits for it")
        cluster.patience = 240
        yield cluster
        return
    informers = InformerFactory(cluster.client)
    parts = [
        NodeLifecycleController(cluster.client, informers, grace=5.0).run(),
        TaintEvictionController(cluster.client, informers).run(),
        PodGarbageCollector(cluster.client, informers, period=0.2, quarantine=0.5).run(),
    ]
    tasks = [asyncio.create_task(work) for work in (*parts, informers.run())]
    try:
        yield cluster
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def taints(node: Object) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}


@asynccontextmanager
async def heard(cluster: Cluster, name: str) -> AsyncIterator[None]:
    """A node that renews its lease; without a ready node no pod is evicted."""
    await cluster.node(name)
    lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}
    await cluster.client.create(LEASES, lease, "kube-node-lease")

    async def beat() -> None:
        while True:
            renewed = {"spec": {"renewTime": to_rfc3339_micro(datetime.now(UTC))}}
            await cluster.client.patch(LEASES, name, renewed, "kube-node-lease")
            await asyncio.sleep(0.2)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await cluster.delete(NODES, name)


async def test_a_node_without_heartbeats_becomes_unknown_and_its_pods_are_evicted_by_their_tolerations(
    hurried: Cluster,
) -> None:
    async with heard(hurried, f"{hurried.namespace}-other"):
        await _falls_silent(hurried, f"{hurried.namespace}-node")


async def _falls_silent(cluster: Cluster, name: str) -> None:
    await cluster.node(name)
    for pod, tolerations in (("leaves", AT_ONCE), ("stays", NEVER)):
        await cluster.pod(pod, node=name, tolerations=tolerations)
        await cluster.move(pod, "Running", address="10.0.0.1")
    unreachable = "node.kubernetes.io/unreachable"
    node = await cluster.becomes(
        NODES, name, lambda item: taints(item) == {(unreachable, "NoSchedule"), (unreachable, "NoExecute")}
    )
    ready = next(condition for condition in node["status"]["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert ready["message"] == "Kubelet stopped posting node status."
    leaving = await cluster.becomes(PODS, "leaves", lambda item: item["metadata"].get("deletionTimestamp"))
    targets = [condition for condition in leaving["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
    assert [target["reason"] for target in targets] == ["DeletionByTaintManager"]
    staying = await cluster.becomes(PODS, "stays", lambda item: not is_ready(item))
    assert "deletionTimestamp" not in staying["metadata"]
    await cluster.event(name, "NodeNotReady", namespace="default")
    await cluster.delete(NODES, name)


async def test_a_cordoned_node_gets_and_loses_its_taint(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-node"
    await cluster.node(name)
    await cluster.patch(NODES, name, {"spec": {"unschedulable": True}})
    await cluster.becomes(NODES, name, lambda item: ("node.kubernetes.io/unschedulable", "NoSchedule") in taints(item))
    await cluster.patch(NODES, name, {"spec": {"unschedulable": None}})
    await cluster.becomes(
        NODES, name, lambda item: ("node.kubernetes.io/unschedulable", "NoSchedule") not in taints(item)
    )
    await cluster.delete(NODES, name)


async def test_pods_of_a_deleted_node_are_deleted(hurried: Cluster) -> None:
    cluster, name = hurried, f"{hurried.namespace}-node"
    await cluster.node(name)
    await cluster.pod("orphan", node=name, tolerations=NEVER)
    await cluster.move("orphan", "Running", address="10.0.0.1")
    await cluster.delete(NODES, name)
    await cluster.gone(PODS, "orphan")


async def test_a_terminating_pod_without_a_node_is_deleted(hurried: Cluster) -> None:
    cluster = hurried
    await cluster.pod("held", nodeSelector={"no": "such"})
    await cluster.patch(PODS, "held", {"metadata": {"finalizers": ["example.com/held"]}})
    await cluster.delete(PODS, "held")
    await cluster.patch(PODS, "held", {"metadata": {"finalizers": None}})
    await cluster.gone(PODS, "held")
