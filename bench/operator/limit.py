"""The upper limit of the server: the objects of the operator's run, created by a client that decides nothing.

The operator creates pods and services while another client creates the jobs; so does this client, in one process and
from one list, with as many concurrent requests or, since a server may do better with fewer, a third of them; the better
of the two is the limit. It watches nothing, writes no status and no events: these are the operator's own cost. In both
runs the time is from the first request until the server shows the last object.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection
from torchyard.operator.settings import MOST_REQUESTS

AT_ONCE = MOST_REQUESTS  # as many as the operator may
# Whoever makes jobs, and the kubelet, leave the operator its share of the server.
OTHERS_AT_ONCE = 32
_LOOK_AGAIN = 0.1


async def run_all(works: Iterable[Awaitable[Any]], at_once: int) -> None:
    """Run all of them, at most `at_once` concurrently."""
    room = asyncio.Semaphore(at_once)

    async def run_one(work: Awaitable[Any]) -> None:
        async with room:
            await work

    await asyncio.gather(*(run_one(work) for work in works))


async def wait_until_created(client: Client, space: str, count: int) -> None:
    """Wait until `count` pods and services exist; list one of each and read the remaining count."""
    for ref in (PODS, SERVICES):
        while True:
            answer = await client.raw("GET", f"{ref.path(space)}?limit=1")
            if len(answer.get("items") or ()) + int(answer["metadata"].get("remainingItemCount") or 0) >= count:
                break
            await asyncio.sleep(_LOOK_AGAIN)


class Limit:
    """`like`: one job's pods and services, as the operator made them."""

    def __init__(self, connection: Connection, like: list[tuple[GroupVersionResource, Object]], count: int) -> None:
        self._connection, self._count = connection, count
        self._like = [(ref, _without_server(obj)) for ref, obj in like]
        self._replicas = sum(ref is PODS for ref, _ in like)

    async def rate(self, space: str, job: Callable[[str], Object] | None, *, share: int = 1) -> float:
        """Replicas a second in an empty namespace; with `job`, as many jobs are made beside them and removed after.

        `share`: by how much fewer requests are under way than the operator may have.
        """
        # Its connections are as new as the operator's are.
        transport = HttpTransport(self._connection, user_agent="bench-limit", limit=AT_ONCE + OTHERS_AT_ONCE + 1)
        client = Client(transport, manager="bench")
        works = [
            client.create(ref, _named(obj, f"b{number}"), space)
            for number in range(self._count)
            for ref, obj in self._like
        ]
        beside = [client.create(JOBS, job(f"b{number}"), space) for number in range(self._count)] if job else []
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(run_all(beside, OTHERS_AT_ONCE // share))
            group.create_task(run_all(works, AT_ONCE // share))
            group.create_task(wait_until_created(client, space, self._count * self._replicas))
        took = time.perf_counter() - begun
        if job:
            await client.raw("DELETE", JOBS.path(space))
        await client.close()
        return self._count * self._replicas / took


def _without_server(obj: Object) -> Object:
    """The object without the fields that the server sets, under a controller name that no controller uses."""
    metadata = {
        key: obj["metadata"][key] for key in ("name", "annotations", "ownerReferences") if key in obj["metadata"]
    }
    labels = {
        key: "x" * len(text) if text == names.CONTROLLER else text for key, text in obj["metadata"]["labels"].items()
    }
    spec = {key: value for key, value in obj["spec"].items() if key not in ("clusterIPs", "nodeName")}
    return {"metadata": {**metadata, "labels": labels}, "spec": spec}


def _named(obj: Object, prefix: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "name": f"{prefix}-{obj['metadata']['name']}"}}
