"""Streams the logs of a job's containers as they start, until the job has finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.cli.log_selection import LogSelection
from torchyard.cli.log_stream import cancel, follow_lines
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.state import belongs_to, pods_of, run_state
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer
from torchyard.kube.job_lookup import JobHandle

ShowLine = Callable[[str, LogLine], None]


async def follow_logs(client: Client, job: JobHandle, selection: LogSelection, show: ShowLine) -> None:
    """Show the lines of every chosen container. Ends when the job has finished and its logs have ended."""
    uid = job.object["metadata"]["uid"]
    labels, fields = pods_of(job.object)
    pods = Informer(client, PODS, namespace=job.namespace, labels=labels, fields=fields)
    objects = Informer(client, job.gvr, namespace=job.namespace, fields=f"metadata.name={job.name}")
    changed = asyncio.Event()
    streams: dict[tuple[str, str, int], asyncio.Task[None]] = {}
    async with AsyncExitStack() as stack:
        for informer in (pods, objects):
            informer.on_change(lambda *_: changed.set())
            stack.push_async_callback(cancel, asyncio.ensure_future(informer.run()))
        stack.push_async_callback(_cancel_all, streams)
        for informer in (pods, objects):
            await informer.synced.wait()
        while True:
            changed.clear()
            for pod in pods.all():
                if belongs_to(pod, uid) and selection.matches(pod, job.name):
                    _start_streams(client, job, pod, selection, show, streams)
            obj = objects.get(job.namespace, job.name)
            if obj is None or obj["metadata"]["uid"] != uid or run_state({"kind": job.object["kind"], **obj}).done:
                break
            await changed.wait()
        running = {pod["metadata"]["uid"] for pod in pods.all() if (pod.get("status") or {}).get("phase") == "Running"}
        ending = [task for (pod_uid, _, _), task in streams.items() if pod_uid not in running]
        await asyncio.gather(*ending)


def _start_streams(
    client: Client,
    job: JobHandle,
    pod: Object,
    selection: LogSelection,
    show: ShowLine,
    streams: dict[tuple[str, str, int], asyncio.Task[None]],
) -> None:
    status = pod.get("status") or {}
    started = {
        container["name"]: container.get("restartCount") or 0
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        if {"running", "terminated"} & set(container.get("state") or ())
    }
    for label, container in selection.containers(pod, job.name):
        key = (pod["metadata"]["uid"], container, started.get(container, 0))
        if container in started and key not in streams:
            streams[key] = asyncio.ensure_future(
                _stream(client, pod["metadata"]["name"], job.namespace, container, label, show)
            )


async def _stream(client: Client, pod: str, namespace: str, container: str, label: str, show: ShowLine) -> None:
    try:
        async with aclosing(follow_lines(client, pod, namespace, container)) as lines:
            async for line in lines:
                show(label, line)
    except StatusError as error:
        if error.status != 404:  # 404: the pod and its log were deleted
            raise


async def _cancel_all(streams: dict[tuple[str, str, int], asyncio.Task[None]]) -> None:
    for task in streams.values():
        await cancel(task)
