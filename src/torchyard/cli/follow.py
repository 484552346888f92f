"""Follows one job until it finishes: its status, its pods, their logs. The decisions are in `core.run`."""

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
from torchyard.core.run.line_splitter import LineSplitter
from torchyard.core.run.progress import TrainingProgress, parse_progress
from torchyard.core.run.state import (
    ContainerFailure,
    RunState,
    first_failure,
    pending_reason,
    pods_of,
    run_state,
    short_name,
)
from torchyard.kube.client import Client, Unreachable
from torchyard.kube.informer import Informer

# How long to wait for the last log lines of a finished job.
LAST_LINES_TIMEOUT = 30.0
_STATUS_COLUMN = 2  # of a pod's table row


class Follower:
    """Shows one PyTorchJob, Job or Pod on a screen until it finishes."""

    def __init__(self, client: Client, gvr: GroupVersionResource, obj: Object, screen: Screen) -> None:
        self._client, self._screen = client, screen
        self._name, self._namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        self._uid, self._kind = obj["metadata"]["uid"], obj["kind"]
        labels, fields = pods_of(obj)
        self._pods = Informer(client, PODS, namespace=self._namespace, labels=labels, fields=fields)
        self._objects = Informer(client, gvr, namespace=self._namespace, fields=f"metadata.name={self._name}")
        self._changed = asyncio.Event()
        for informer in (self._pods, self._objects):
            informer.on_change(lambda *_: self._changed.set())
        self._logs: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._progress: dict[str, TrainingProgress] = {}
        self._pending_reasons: dict[str, str] = {}

    async def run(self) -> tuple[RunState, ContainerFailure | None]:
        """Return how the object finished and, if it failed, the container that failed first."""
        async with AsyncExitStack() as stack:
            for informer in (self._pods, self._objects):
                stack.push_async_callback(_cancel, asyncio.ensure_future(informer.run()))
            for informer in (self._pods, self._objects):
                await informer.synced.wait()
            stack.push_async_callback(self._stop_logs)
            result = await self._until_done()
            failure = None if result.succeeded else first_failure(self._own_pods())
            if self._logs:
                await asyncio.wait(self._logs.values(), timeout=LAST_LINES_TIMEOUT)
            return result, failure

    async def _until_done(self) -> RunState:
        while True:
            self._changed.clear()
            obj = self._objects.get(self._namespace, self._name)
            if obj is None or obj["metadata"]["uid"] != self._uid:
                raise YardError(f"{self._kind} {self._namespace}/{self._name} was deleted while it ran", code="Gone")
            for pod in self._own_pods():
                self._observe(pod)
            result = run_state({"kind": self._kind, **obj})
            self._show(result)
            if result.done:
                return result
            await self._changed.wait()

    def _own_pods(self) -> list[Object]:
        """Return the pods of this object, not those of an earlier object of the same name."""
        pods = [
            pod
            for pod in self._pods.all()
            if pod["metadata"]["uid"] == self._uid
            or any(owner["uid"] == self._uid for owner in pod["metadata"].get("ownerReferences") or ())
        ]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def _observe(self, pod: Object) -> None:
        """Report why a pod is pending when that changes, and start to stream the log of each container that started."""
        name = pod["metadata"]["name"]
        reason = pending_reason(pod)
        if reason != self._pending_reasons.get(name, ""):
            self._pending_reasons[name] = reason
            if reason:
                self._screen.note(f"{name} is waiting: {reason}")
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            state = status.get("state") or {}
            key = (pod["metadata"]["uid"], status["name"], status.get("restartCount") or 0)
            if ("running" in state or "terminated" in state) and key not in self._logs:
                is_first = pod["spec"]["containers"][0]["name"] == status["name"]
                self._logs[key] = asyncio.ensure_future(self._stream(name, status["name"], is_first=is_first))

    async def _stream(self, pod: str, container: str, *, is_first: bool) -> None:
        """Show every line of one container in order. After a broken connection, continue where it broke."""
        label = short_name(pod, self._name) if pod != self._name else ""
        label = label if is_first else f"{label}/{container}"
        received, lines = 0, LineSplitter()
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
                if error.status != 404:  # 404: the pod and its log were deleted
                    self._screen.note(f"cannot read the log of {pod}: {error.message}")
                break
        if lines.rest:
            self._line(pod, label, lines.rest)

    def _line(self, pod: str, label: str, line: str) -> None:
        self._screen.log(label, line)
        parsed = parse_progress(line)
        if parsed is not None:
            self._progress[pod] = parsed
            self._changed.set()

    def _show(self, result: RunState) -> None:
        rows = []
        for pod in self._own_pods():
            name = pod["metadata"]["name"]
            status = str(columns.cells(pod, datetime.now(UTC))[_STATUS_COLUMN])
            rows.append(Replica(short_name(name, self._name), status, self._progress.get(name)))
        self._screen.show(result.state, rows)

    async def _stop_logs(self) -> None:
        for task in self._logs.values():
            await _cancel(task)


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
