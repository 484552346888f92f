"""The plane's scheduler without a node agent, and nodes that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from torchyard.api.gvr import NODES
from torchyard.controllers.scheduler import Scheduler
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory
from torchyard.yard.plane import Plane


@contextlib.asynccontextmanager
async def running_scheduler(plane: Plane) -> AsyncIterator[Scheduler]:
    """Run the scheduler, which a plane without a node does not start."""
    client = plane.client("scheduler")
    informers = InformerFactory(client)
    scheduler = Scheduler(client, informers)
    tasks = [
        asyncio.create_task(plane.supervisor.run(name, part))
        for name, part in (("scheduler", scheduler.run), ("scheduler informers", informers.run))
    ]
    try:
        yield scheduler
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def create_node(client: Client, name: str, *, cpu: str = "64", pods: str = "110") -> None:
    """Create a node that is ready."""
    await create_starting_node(client, name)
    await make_ready(client, name, cpu=cpu, pods=pods)


async def create_starting_node(client: Client, name: str) -> None:
    """Create a node whose agent has not reported yet."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


async def make_ready(client: Client, name: str, *, cpu: str = "64", pods: str = "110") -> None:
    """Report as a node's agent does."""
    resources = {"cpu": cpu, "memory": "64Gi", "pods": pods}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    await client.patch(NODES, name, {"status": status}, subresource="status")
    await client.patch(NODES, name, {"spec": {"taints": None}})  # "not ready", which the server adds to a new node
