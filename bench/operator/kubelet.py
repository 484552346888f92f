"""A kubelet that moves pods without running them: Running when seen, Succeeded when all of a job run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.informer_factory import InformerFactory


def _by_job(pod: Object) -> list[str]:
    return [pod["metadata"]["labels"][names.JOB_NAME]]


class Kubelet:
    """`run` until cancelled. `reached`: when it was first seen of which job that it runs, and that it has succeeded."""

    def __init__(self, client: Client, namespace: str, *, replicas: int, at_once: int) -> None:
        self._client, self._replicas = client, replicas
        self._informers = InformerFactory(client, namespace=namespace)
        ours = f"{names.OPERATOR_NAME}={names.CONTROLLER}"
        self._pods = self._informers.for_resource(PODS, labels=ours, indexes={"job": _by_job})
        self._jobs = self._informers.for_resource(JOBS)
        self.reached: dict[str, dict[str, float]] = {"Running": {}, "Succeeded": {}}
        self._running = Counter[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(at_once)
        self._pods.on_change(self._pod)
        self._jobs.on_change(self._job)

    async def run(self) -> None:
        await self._informers.run()

    async def watches(self) -> None:
        """Until it sees everything."""
        await self._informers.synced()

    def _pod(self, change: str, pod: Object, _: Object | None) -> None:
        owner, phase = _by_job(pod)[0], (pod.get("status") or {}).get("phase")
        if change == "ADDED" and phase == "Pending":
            self._move(pod, "Running")
        elif change == "MODIFIED" and phase == "Running":
            self._running[owner] += 1
            if self._running[owner] == self._replicas:
                for member in self._pods.by("job", owner):
                    self._move(member, "Succeeded")

    def _move(self, pod: Object, phase: str) -> None:
        task = asyncio.get_running_loop().create_task(self._patch(pod["metadata"], {"status": {"phase": phase}}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _patch(self, metadata: Object, patch: Object) -> None:
        async with self._room:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")

    def _job(self, _change: str, job: Object, _: Object | None) -> None:
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition["status"] == "True" and condition["type"] in self.reached:
                self.reached[condition["type"]].setdefault(job["metadata"]["name"], time.perf_counter())
