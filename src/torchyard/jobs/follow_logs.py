"""Streams the logs of a job's containers as they start, until the job has finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_statuses
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.state import belongs_to, pods_of, run_state
from torchyard.jobs.log_selection import LogSelection
from torchyard.jobs.log_stream import cancel, follow_lines
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import JobHandle

ShowLine = Callable[[str, LogLine], None]
ShowError = Callable[[str, StatusError], None]


class ContainerKey(NamedTuple):
    """A container that has started, and how often before."""

    pod_uid: str
    container: str
    restarts: int


async def follow_logs(
    client: Client, job: JobHandle, selection: LogSelection, show: ShowLine, show_error: ShowError
) -> None:
    """Show the lines of every chosen container, or why its log cannot be read.

    Ends when the job has finished and its logs have ended.
    """
    await LogFollower(client, job, selection, show, show_error).run()


async def stream_logs(
    client: Client, job: JobHandle, selection: LogSelection
) -> AsyncGenerator[tuple[str, LogLine], None]:
    """Yield the lines of every chosen container with its label, as `follow_logs` shows them."""
    lines: asyncio.Queue[tuple[str, LogLine] | None] = asyncio.Queue()
    follower = LogFollower(client, job, selection, lambda label, line: lines.put_nowait((label, line)))

    async def follow() -> None:
        try:
            await follower.run()
        finally:
            lines.put_nowait(None)

    following = asyncio.ensure_future(follow())
    try:
        while (item := await lines.get()) is not None:
            yield item
        await following  # raises the error that ended it
    finally:
        await cancel(following)


class LogFollower:
    """One stream for each container that has started, among those that are chosen.

    The selection's tail and period apply to what was written before; containers that start later are shown whole.
    Without `show_error`, the error of a log that cannot be read is raised when the job has finished.
    """

    def __init__(
        self,
        client: Client,
        job: JobHandle,
        selection: LogSelection,
        show: ShowLine,
        show_error: ShowError | None = None,
    ) -> None:
        self._client, self._job, self._selection = client, job, selection
        self._show, self._show_error = show, show_error
        self._uid = job.object["metadata"]["uid"]
        self._streams: dict[ContainerKey, asyncio.Task[None]] = {}
        self._shows_whole_logs = False

    async def run(self) -> None:
        job = self._job
        labels, fields = pods_of(job.object)
        pods = Informer(self._client, PODS, namespace=job.namespace, labels=labels, fields=fields)
        objects = Informer(self._client, job.gvr, namespace=job.namespace, fields=f"metadata.name={job.name}")
        changed = asyncio.Event()
        async with AsyncExitStack() as stack:
            for informer in (pods, objects):
                informer.on_change(lambda *_: changed.set())
                stack.push_async_callback(cancel, asyncio.ensure_future(informer.run()))
            stack.push_async_callback(self._cancel_streams)
            for informer in (pods, objects):
                await informer.synced.wait()
            while True:
                changed.clear()
                self._start_streams(pods.all())
                self._shows_whole_logs = True
                if self._is_done(objects.get(job.namespace, job.name)):
                    break
                await changed.wait()
            # The watch of the pods may be behind that of the job, and the last lines must not be missed.
            last = (await self._client.list(PODS, job.namespace, labels=labels, fields=fields)).items
            self._start_streams(last)
            # Whatever still runs may run for ever, such as a worker that waits for a master that has ended.
            running = {key for pod in last for key in _running_containers(pod)}
            await asyncio.gather(*(task for key, task in self._streams.items() if key not in running))

    def _is_done(self, obj: Object | None) -> bool:
        if obj is None or obj["metadata"]["uid"] != self._uid:
            return True
        return run_state({"kind": self._job.object["kind"], **obj}).done

    def _start_streams(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            if not belongs_to(pod, self._uid) or not self._selection.matches(pod, self._job.name):
                continue
            started = {
                container["name"]: container.get("restartCount") or 0
                for container in container_statuses(pod)
                if {"running", "terminated"} & set(container.get("state") or ())
            }
            for label, container in self._selection.containers(pod, self._job.name):
                key = ContainerKey(pod["metadata"]["uid"], container, started.get(container, 0))
                if container in started and key not in self._streams:
                    stream = self._stream(pod["metadata"]["name"], container, label, whole=self._shows_whole_logs)
                    self._streams[key] = asyncio.ensure_future(stream)

    async def _stream(self, pod: str, container: str, label: str, *, whole: bool) -> None:
        try:
            stream = follow_lines(
                self._client,
                pod,
                self._job.namespace,
                container,
                since_seconds=None if whole else self._selection.since_seconds,
                tail_lines=None if whole else self._selection.tail_lines,
                timestamps=self._selection.timestamps,
            )
            async with aclosing(stream) as lines:
                async for line in lines:
                    self._show(label, line)
        except StatusError as error:
            if error.status == 404:  # the pod and its log were deleted
                return
            if self._show_error is None:
                raise
            self._show_error(label, error)

    async def _cancel_streams(self) -> None:
        for task in self._streams.values():
            await cancel(task)


def _running_containers(pod: Object) -> Iterator[ContainerKey]:
    for container in container_statuses(pod):
        if "running" in (container.get("state") or ()):
            yield ContainerKey(pod["metadata"]["uid"], container["name"], container.get("restartCount") or 0)
