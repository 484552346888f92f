"""How the Job controller writes pods."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.controllers.job_pods import JobPodWriter
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "default", "uid": "u"}}


class Server:
    """Answers creations when it is told to; the first `room` succeed."""

    def __init__(self, room: int) -> None:
        self.room, self.asked, self.created = room, 0, 0
        self.go = asyncio.Event()

    async def create(self, _ref: object, pod: dict[str, Any], *_: Any) -> dict[str, Any]:
        self.asked += 1
        await self.go.wait()
        if self.created == self.room:
            raise StatusError(403, "Forbidden", "exceeded quota")
        self.created += 1
        return {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.created)}}


def writer(server: Server) -> JobPodWriter:
    client = cast(Client, server)
    return JobPodWriter(client, EventRecorder(client, "test"), MutationCache(Informer(client, PODS)))


def pods(count: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"job-{number}", "namespace": "default"}} for number in range(count)]


async def test_the_pods_of_a_small_job_are_written_at_the_same_time() -> None:
    server = Server(room=4)
    creating = asyncio.create_task(writer(server).create(JOB, pods(4)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.asked == 4
    server.go.set()
    assert (await creating).missing == 0


async def test_a_failure_ends_the_creation_after_a_few_pods() -> None:
    server = Server(room=0)
    server.go.set()
    result = await writer(server).create(JOB, pods(500))
    assert (result.missing, server.asked) == (500, 4)
    assert result.error is not None
