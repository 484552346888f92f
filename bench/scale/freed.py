"""How soon a CPU that becomes free is used, beside pods that wait for more than there is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from torchyard.api.gvr import NODES, PODS
from torchyard.api.objects import Object
from torchyard.api.quantity import parse
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_ROUNDS = 5


async def freed_milliseconds(kubeconfig: Path) -> float:
    """The best of five: from the answer to the deletion of a pod until the next one is bound, over a socket."""
    async with open_client(load(kubeconfig), "bench") as client:
        cpu = await _cpu_of_node(client)
        await _create(client, 0, cpu)
        await _wait_for_node(client, 0)
        best = float("inf")
        for number in range(1, _ROUNDS + 1):
            await _create(client, number, cpu)
            await asyncio.sleep(0.5)
            waiting = asyncio.create_task(_wait_for_node(client, number))
            await asyncio.sleep(0.2)
            await client.delete(PODS, _name(number - 1), "default", grace=0)
            deleted = time.perf_counter()
            best = min(best, await waiting - deleted)
        await client.delete(PODS, _name(_ROUNDS), "default", grace=0)
        return max(best, 0.0) * 1000


async def _cpu_of_node(client: Client) -> int:
    """Most of the node's CPU, in thousandths: two such pods do not fit."""
    node = (await client.list(NODES)).items[0]
    return parse(str(node["status"]["allocatable"]["cpu"])).milli * 6 // 10


def _name(number: int) -> str:
    return f"freed-{number}"


async def _create(client: Client, number: int, milli: int) -> None:
    requests = {"resources": {"requests": {"cpu": f"{milli}m"}}}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _name(number)},
        "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", **requests}]},
    }
    await client.create(PODS, pod, "default")


async def _wait_for_node(client: Client, number: int) -> float:
    """The moment at which the pod has a node."""
    async for _, pod in client.watch(PODS, "default", initial=True, fields=f"metadata.name={_name(number)}"):
        if (pod.get("spec") or {}).get("nodeName"):
            break
    return time.perf_counter()
