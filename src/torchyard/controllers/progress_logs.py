"""Reports the progress that the jobs of a cluster print, from the ends of their pods' logs.

The operator's counterpart of the node's scanner (`node/logs/progress.py`), by requests for logs instead of files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime

from torchyard.api.errors import YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import ENDED
from torchyard.core.progress.lines import LineParser, epochs_of
from torchyard.core.progress.log_polling import MAX_BYTES, LogTail, PollSchedule, training_container
from torchyard.core.progress.owners import job_of, rank_of
from torchyard.core.progress.reports import LOG, JobReference, ProgressReport
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer

log = logging.getLogger(__name__)

_TICK_SECONDS, _READ_SECONDS, _MAX_READS = 0.25, 10.0, 8
_RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _PodLog:
    job: JobReference
    namespace: str
    name: str
    rank: int
    container: str
    tail: LogTail
    has_ended: bool = False


class PodLogReader:
    """`follow` the caches of pods, then `run` until cancelled.

    `is_managed` says whether the progress of a job is kept. A job's first replica that runs speaks for it, so only its
    log is read.
    """

    def __init__(
        self,
        client: Client,
        publish: Callable[[ProgressReport], None],
        *,
        is_managed: Callable[[JobReference], bool] = lambda _: True,
        container_of: Callable[[JobReference, Object], Object | None] = lambda _, pod: training_container(pod),
    ) -> None:
        """`container_of` finds the container of a pod of which a cache keeps only a part."""
        self._client, self._publish = client, publish
        self._is_managed, self._container_of = is_managed, container_of
        self._pods: dict[str, _PodLog] = {}
        self._by_job: dict[JobReference, dict[str, int]] = {}  # ranks of the pods that run
        self._speakers: dict[JobReference, str] = {}  # the pods whose logs are read
        self._done: set[str] = set()  # pods whose logs are read to the end
        self._waiting: dict[str, Object] = {}  # pods that run, and whose jobs are not in their caches or not managed
        self._schedule: PollSchedule[str] = PollSchedule()
        self._slots = asyncio.Semaphore(_MAX_READS)
        self._is_running = False
        self.reads = 0

    def follow(self, pods: Informer) -> None:
        pods.on_change(lambda change, pod, _before: self.observe(change, pod))

    def observe(self, change: str, pod: Object) -> None:
        uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase")
        self._waiting.pop(uid, None)
        if change == "DELETED":
            self._done.discard(uid)
            self._observe_deletion(uid)
        elif uid in self._done:
            return
        elif phase == "Running":
            if uid not in self._pods:
                self._add(uid, pod)
        elif phase in ENDED:
            self._observe_end(uid)

    def _observe_deletion(self, uid: str) -> None:
        """There is no log to look at any more."""
        pod_log = self._pods.get(uid)
        if pod_log is not None:
            is_read = self._is_running and self._speakers[pod_log.job] == uid
            self._forget(uid)
            if is_read:
                self._publish_last(pod_log)

    def _observe_end(self, uid: str) -> None:
        pod_log = self._pods.get(uid)
        if pod_log is None or not self._is_running or self._speakers[pod_log.job] != uid:
            self._forget(uid)
            self._done.add(uid)
        else:
            pod_log.has_ended = True
            self._schedule.hurry(uid, time.monotonic())

    def _add(self, uid: str, pod: Object) -> None:
        job = job_of(pod)
        if job is None:
            self._done.add(uid)
            return
        container = self._container_of(job, pod)
        if container is None or not self._is_managed(job):
            self._waiting[uid] = pod  # a pod that runs may not change for days, so the next change is no time to retry
            return
        metadata, tail = pod["metadata"], LogTail(LineParser(epochs_of(container)))
        rank = rank_of(pod)
        self._pods[uid] = _PodLog(job, metadata["namespace"], metadata["name"], rank, container["name"], tail)
        self._by_job.setdefault(job, {})[uid] = rank
        self._choose_speaker(job)

    def _forget(self, uid: str) -> None:
        pod_log = self._pods.pop(uid, None)
        if pod_log is not None:
            self._schedule.forget(uid)
            ranks = self._by_job[pod_log.job]
            del ranks[uid]
            if ranks:
                self._choose_speaker(pod_log.job)
            else:
                del self._by_job[pod_log.job], self._speakers[pod_log.job]

    def _choose_speaker(self, job: JobReference) -> None:
        ranks, before = self._by_job[job], self._speakers.get(job, "")
        speaker = min(ranks, key=lambda uid: (ranks[uid], uid != before))
        if speaker != before:
            self._schedule.forget(before)
            self._schedule.add(speaker, time.monotonic())
            self._speakers[job] = speaker

    async def run(self) -> None:
        """May be called again, by the next leadership."""
        self._is_running, retry = True, time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    if time.monotonic() >= retry:
                        retry = time.monotonic() + _RETRY_SECONDS
                        self._retry_waiting()
                    for uid in self._schedule.due(time.monotonic()):
                        tasks.create_task(self._look(uid, self._pods[uid]))
                    await asyncio.sleep(_TICK_SECONDS)
        finally:
            self._is_running = False

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for uid, pod in waiting.items():
            self._add(uid, pod)

    async def _look(self, uid: str, pod_log: _PodLog) -> None:
        """Errors are logged here: one log must not keep the others from being read."""
        has_ended, has_reported = pod_log.has_ended, False  # before the look
        try:
            has_reported = await self._read(pod_log)
        except (YardError, OSError, TimeoutError) as error:  # such as a node that does not answer
            name = f"{pod_log.namespace}/{pod_log.name}"
            log.info("log not read for progress: pod=%s error=%s", name, error or type(error).__name__)
        except Exception:  # whatever a program prints
            log.exception("log not read for progress: pod=%s/%s", pod_log.namespace, pod_log.name)
        finally:
            self._schedule.looked(uid, time.monotonic(), has_reported=has_reported)
        if uid not in self._pods:  # deleted during the look, whose reports came after the last one
            self._publish_last(pod_log)
        elif has_ended:
            self._forget(uid)
            self._done.add(uid)
            self._publish_last(pod_log)
        elif pod_log.has_ended:
            self._schedule.hurry(uid, time.monotonic())

    def _publish_last(self, pod_log: _PodLog) -> None:
        now = datetime.now(UTC)
        self._publish(ProgressReport(pod_log.job, pod_log.name, pod_log.rank, now, LOG, is_last=True))

    async def _read(self, pod_log: _PodLog) -> bool:
        """Returns whether the log reports something new."""
        data, is_cut = await self._fetch(pod_log)
        has_reported = False
        for at, text in pod_log.tail.added(data, is_cut=is_cut):
            report = pod_log.tail.parser.parse(text, at.timestamp())
            if report is not None:
                has_reported = True
                percent = None if report.percent is None else int(report.percent)
                self._publish(
                    ProgressReport(
                        pod_log.job, pod_log.name, pod_log.rank, at, LOG, percent, report.remaining, report.metrics
                    )
                )
        return has_reported

    async def _fetch(self, pod_log: _PodLog) -> tuple[bytes, bool]:
        """The end of a log, and whether it is longer than what is read."""
        data = bytearray()
        async with self._slots, asyncio.timeout(_READ_SECONDS):
            self.reads += 1
            chunks = self._client.logs(
                PODS,
                pod_log.name,
                pod_log.namespace,
                container=pod_log.container,
                tail_lines=pod_log.tail.lines,
                timestamps=True,
            )
            async with aclosing(chunks):
                async for chunk in chunks:
                    data += chunk
                    if len(data) > MAX_BYTES:
                        return bytes(data[:MAX_BYTES]), True
        return bytes(data), False
