"""Follows one job to its end: its status, its pods, what they print. Decides nothing; that is `core.run`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod import columns
from torchyard.cli.screen import Replica, Screen
from torchyard.core.run.lines import Lines
from torchyard.core.run.outcome import Failure, Outcome, first_failure, holdup, outcome, pods_of, short_name
from torchyard.core.run.progress import Progress, progress
from torchyard.kube.client import Client, Unreachable
from torchyard.kube.informer import Informer

# How long the last lines may take to arrive once the job has ended.
LAST_LINES = 30.0
_STATUS = 2  # the cell of a pod's row that sums it up


class Follower:
    """One object that runs pods, from now until it has ended."""

    def __init__(self, client: Client, ref: GroupVersionResource, obj: Object, screen: Screen) -> None:
        self._client, self._screen = client, screen
        self._name, self._namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        self._uid, self._kind = obj["metadata"]["uid"], obj["kind"]
        labels, fields = pods_of(obj)
        self._pods = Informer(client, PODS, namespace=self._namespace, labels=labels, fields=fields)
        self._objects = Informer(client, ref, namespace=self._namespace, fields=f"metadata.name={self._name}")
        self._changed = asyncio.Event()
        for informer in (self._pods, self._objects):
            informer.on_change(lambda *_: self._changed.set())
        self._logs: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._progress: dict[str, Progress] = {}
        self._told: dict[str, str] = {}

    async def run(self) -> tuple[Outcome, Failure | None]:
        """How it ended, and who failed first if it failed."""
        async with AsyncExitStack() as stack:
            for informer in (self._pods, self._objects):
                stack.push_async_callback(_cancel, asyncio.ensure_future(informer.run()))
            for informer in (self._pods, self._objects):
                await informer.synced.wait()
            stack.push_async_callback(self._stop_logs)
            result = await self._until_done()
            failure = None if result.succeeded else first_failure(self._mine())
            if self._logs:
                await asyncio.wait(self._logs.values(), timeout=LAST_LINES)
            return result, failure

    async def _until_done(self) -> Outcome:
        while True:
            self._changed.clear()
            obj = self._objects.get(self._namespace, self._name)
            if obj is None or obj["metadata"]["uid"] != self._uid:
                raise YardError(f"{self._kind} {self._namespace}/{self._name} was deleted meanwhile", code="Gone")
            for pod in self._mine():
                self._look_at(pod)
            result = outcome({"kind": self._kind, **obj})
            self._show(result)
            if result.done:
                return result
            await self._changed.wait()

    def _mine(self) -> list[Object]:
        """Its pods; not those of a job that had this name before."""
        found = [
            pod
            for pod in self._pods.all()
            if pod["metadata"]["uid"] == self._uid
            or any(owner["uid"] == self._uid for owner in pod["metadata"].get("ownerReferences") or ())
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _look_at(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        why = holdup(pod)
        if why != self._told.get(name, ""):
            self._told[name] = why
            if why:
                self._screen.note(f"{name} waits: {why}")
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            state = status.get("state") or {}
            key = (pod["metadata"]["uid"], status["name"], status.get("restartCount") or 0)
            if ("running" in state or "terminated" in state) and key not in self._logs:
                first = pod["spec"]["containers"][0]["name"] == status["name"]
                self._logs[key] = asyncio.ensure_future(self._stream(name, status["name"], alone=first))

    async def _stream(self, pod: str, container: str, *, alone: bool) -> None:
        """Every line of one container, in order; after a broken connection from where it broke."""
        label = short_name(pod, self._name) if pod != self._name else ""
        label = label if alone else f"{label}/{container}"
        received, lines = 0, Lines()
        while True:
            skip = received
            try:
                pieces = self._client.logs(PODS, pod, self._namespace, container=container, follow=True)
                async with aclosing(pieces) as stream:
                    async for piece in stream:
                        new = piece[skip:]
                        skip = max(0, skip - len(piece))
                        received += len(new)
                        for line in lines.of(new):
                            self._line(pod, label, line)
                break
            except Unreachable:
                await asyncio.sleep(1)
            except StatusError as error:
                if error.status != 404:  # the pod went together with its log
                    self._screen.note(f"the log of {pod} cannot be read: {error.message}")
                break
        if lines.rest:
            self._line(pod, label, lines.rest)

    def _line(self, pod: str, label: str, line: str) -> None:
        self._screen.log(label, line)
        found = progress(line)
        if found is not None:
            self._progress[pod] = found
            self._changed.set()

    def _show(self, result: Outcome) -> None:
        rows = []
        for pod in self._mine():
            name = pod["metadata"]["name"]
            status = str(columns.cells(pod, datetime.now(UTC))[_STATUS])
            rows.append(Replica(short_name(name, self._name), status, self._progress.get(name)))
        self._screen.show(result.state, rows)

    async def _stop_logs(self) -> None:
        for task in self._logs.values():
            await _cancel(task)


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
