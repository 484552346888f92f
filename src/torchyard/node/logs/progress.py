"""Reports the progress that the containers of jobs print, from the ends of their logs.

One loop looks at the sizes of all logs twice a second and reads only what was added: a follower of each log would cost
more than the trainings' reports are worth. Of a program that prints much, only the end is read. The logs of a pod that
has ended or is being deleted are read at once, because its directory may be gone at the next scan.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from torchyard.api.objects import Object
from torchyard.api.pod.phases import ENDED
from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.core.progress.lines import LineParser, LineReport, epochs_of
from torchyard.core.progress.owners import job_of, rank_of
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport
from torchyard.node.pod.pod_dir import PodDir

log = logging.getLogger(__name__)

_SCAN_SECONDS = 0.5
_MAX_BYTES, _MAX_LINES = 64 * 1024, 100  # of one log in one scan
_WITHOUT_PAUSE = 50  # pods whose logs are examined before other tasks run


@dataclass(slots=True)
class _ContainerLog:
    """Where to go on in the log of a container's current attempt."""

    name: str
    epochs: int | None
    current_id: str = ""  # of the container, as its pod shows it
    id: str = ""  # of the container whose log is read
    path: str = ""
    inode: int = 0
    position: int = 0
    parser: LineParser = field(default_factory=LineParser)
    has_failed: bool = False


@dataclass(slots=True)
class _PodLogs:
    job: JobReference
    replica: str
    rank: int
    directory: PodDir
    containers: dict[str, _ContainerLog]
    has_ended: bool = False
    is_deleted: bool = False


class ProgressScanner:
    """`observe` the pods of the node, which reads no file; `run` until cancelled."""

    def __init__(self, pods: Path, publish: Callable[[ProgressReport], None]) -> None:
        self._root, self._publish = pods, publish
        self._pods: dict[str, _PodLogs] = {}
        self._done: set[str] = set()  # pods whose logs are read to the end
        self._urgent: set[str] = set()  # pods whose logs are read before the next scan
        self._has_urgent = asyncio.Event()

    def observe(self, change: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        logs = self._pods.get(uid)
        if change == "DELETED":
            self._done.discard(uid)
            if logs is not None:
                logs.is_deleted = True
                self._hurry(uid)
            return
        if uid in self._done:
            return
        if logs is None:
            job = job_of(pod)
            if job is None:
                return
            containers = {
                each["name"]: _ContainerLog(each["name"], epochs_of(each)) for each in pod["spec"]["containers"]
            }
            directory = PodDir(self._root / uid)
            logs = self._pods[uid] = _PodLogs(job, pod["metadata"]["name"], rank_of(pod), directory, containers)
        status = pod.get("status") or {}
        for container_status in status.get("containerStatuses") or ():
            container, id = logs.containers.get(container_status["name"]), container_status.get("containerID")
            if container is not None and id:
                container.current_id = id
        logs.has_ended = status.get("phase") in ENDED
        if logs.has_ended or pod["metadata"].get("deletionTimestamp"):
            self._hurry(uid)

    def _hurry(self, uid: str) -> None:
        self._urgent.add(uid)
        self._has_urgent.set()

    async def run(self) -> None:
        next_scan = monotonic() + _SCAN_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(next_scan - monotonic()):
                    await self._has_urgent.wait()
            self._has_urgent.clear()
            urgent, self._urgent = self._urgent, set()
            if monotonic() >= next_scan:
                await self._scan_all(list(self._pods))
                next_scan = monotonic() + _SCAN_SECONDS
            else:
                await self._scan_all([uid for uid in urgent if uid in self._pods])

    async def _scan_all(self, uids: list[str]) -> None:
        for number, uid in enumerate(uids, 1):
            logs = self._pods[uid]
            is_over = logs.has_ended or logs.is_deleted  # before the last look at the logs
            await self._scan(logs)
            if is_over:
                del self._pods[uid]
                if not logs.is_deleted:
                    self._done.add(uid)
                now = datetime.now(UTC)
                self._publish(ProgressReport(logs.job, logs.replica, logs.rank, now, LOG, is_last=True))
            if number % _WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)

    async def _scan(self, logs: _PodLogs) -> None:
        for container in logs.containers.values():
            try:
                has_read = self._scan_container(logs, container)
            except Exception:  # whatever a program prints or its log is, the other containers are read
                if not container.has_failed:
                    log.exception("log not read for progress: pod=%s container=%s", logs.replica, container.name)
                container.has_failed = has_read = True
            else:
                container.has_failed = False
            if has_read:
                await asyncio.sleep(0)

    def _scan_container(self, logs: _PodLogs, container: _ContainerLog) -> bool:
        """Returns whether there was something to read."""
        has_read = bool(container.path) and self._publish_added(logs, container)
        if container.id == container.current_id:
            return has_read
        # Another attempt began; the end of the one before is read.
        numbers = logs.directory.attempt_numbers(container.name)
        if not numbers:
            return has_read
        container.id, container.path = container.current_id, str(logs.directory.log(container.name, numbers[-1]))
        container.inode = container.position = 0
        container.parser = LineParser(container.epochs)
        return self._publish_added(logs, container) or has_read

    def _publish_added(self, logs: _PodLogs, container: _ContainerLog) -> bool:
        try:
            status = os.stat(container.path)  # noqa: PTH116 - for every log, twice a second
        except FileNotFoundError:
            return False
        if status.st_ino != container.inode:  # the first look, or the log was rotated
            container.inode, container.position = status.st_ino, 0
        if status.st_size <= container.position:
            return False
        lines = _read_lines(container, status.st_size)
        reports = [
            (time, report)
            for time, text in lines
            if (report := container.parser.parse(text, time.timestamp())) is not None
        ]
        for time, report in reports:
            self._publish(_progress_report(logs, time, report))
        return True


def _progress_report(logs: _PodLogs, time: datetime, report: LineReport) -> ProgressReport:
    percent = None if report.percent is None else int(report.percent)
    return ProgressReport(logs.job, logs.replica, logs.rank, time, LOG, percent, report.remaining, report.metrics)


def _read_lines(container: _ContainerLog, size: int) -> list[tuple[datetime, str]]:
    """The lines that were added, with their times; the last ones if they are many. An incomplete one waits."""
    start = max(container.position, size - _MAX_BYTES)
    descriptor = os.open(container.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(descriptor, size - start, start)
    finally:
        os.close(descriptor)
    end = data.rfind(b"\n") + 1
    lines = data[:end].split(b"\n")[:-1]  # a carriage return is part of a line
    if start > container.position:
        lines = lines[1:]  # it began before
    container.position = start + end
    parsed = (_parse_line(line) for line in lines[-_MAX_LINES:])
    return [line for line in parsed if line is not None]


def _parse_line(line: bytes) -> tuple[datetime, str] | None:
    """The time and the text of a line in the format of container runtimes: `TIME stdout F TEXT`."""
    time, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    _, _, text = rest.partition(b" ")
    if not text:
        return None
    try:
        return parse_rfc3339(time.decode()).astimezone(UTC), text.decode(errors="replace")
    except (TimeError, UnicodeDecodeError):
        return None  # a line that was cut when the disk was full
