"""The metrics that the first replica of a job prints, from one log stream for each start of its container."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.jobs.log_stream import cancel

MetricRow = dict[str, float]
_Start = tuple[str, int]  # the uid of a pod, and how often its containers have restarted


class MetricFollower:
    """Keeps the rows of a log that it follows, so that nothing is read twice. `open_rows` opens the stream."""

    def __init__(self, open_rows: Callable[[], AsyncGenerator[MetricRow, None]]) -> None:
        self._open_rows = open_rows
        self._start: _Start | None = None
        self._task: asyncio.Task[None] | None = None
        self.rows: list[MetricRow] = []

    def observe(self, pod: Object) -> None:
        """Follow the log of the pod, and follow again after its container has started again."""
        start = _start(pod)
        if start == self._start or not self.is_idle:
            return
        self._start = start
        self._task = asyncio.create_task(self._collect())

    @property
    def is_idle(self) -> bool:
        """Whether no stream is open: none was, or the last one has ended."""
        return self._task is None or self._task.done()

    async def close(self) -> None:
        if self._task is not None:
            await cancel(self._task)

    async def _collect(self) -> None:
        rows: list[MetricRow] = []
        self.rows = rows
        try:
            async with aclosing(self._open_rows()) as stream:
                async for row in stream:
                    rows.append(row)
        except YardError:  # the container has not started, or its node has lost the log
            self._start = None


def _start(pod: Object) -> _Start:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return pod["metadata"]["uid"], sum(status.get("restartCount", 0) for status in statuses)
