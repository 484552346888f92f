"""Writes into pending workloads why they are pending: into the head of a heap on each change, into the others once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import NamedTuple

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.api.queue.messages import ReasonMessage
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue import lifecycle
from torchyard.core.queue.advice import machine_hint, with_advice
from torchyard.core.queue.cluster_queue import PendingHeap
from torchyard.core.queue.decisions import StayPending
from torchyard.core.queue.workload_info import Key, WorkloadInfo
from torchyard.kube.event_recorder import EventRecorder

log = logging.getLogger(__name__)

# While workloads are admitted, reports take a tenth of the time: each is followed by a pause of nine times its length.
_PAUSE_FACTOR = 9.0
_RETRY_SECONDS = 1.0


class _Report(NamedTuple):
    info: WorkloadInfo
    why: ReasonMessage


class PendingReporter:
    """`run` until cancelled."""

    def __init__(self, store: QueueStore, recorder: EventRecorder) -> None:
        self._store, self._recorder = store, recorder
        self._pending = store.state.pending
        self._heads: dict[Key, StayPending] = {}
        self._heaps: dict[PendingHeap, None] = {}  # heaps that may have workloads without a report
        self._failed: deque[_Report] = deque()  # to be written again
        self._has_work = asyncio.Event()

    def add(self, decision: StayPending) -> None:
        if decision.info.pending_message == decision.why.message:
            decision.info.pending_cause = decision.why.reason
        else:
            self._heads[decision.info.key] = decision
        self._heaps[decision.heap] = None
        self._has_work.set()

    def collect(self) -> None:
        """After a cycle: take over workloads that joined an inadmissible heap, or became ineligible."""
        self._heaps |= self._pending.joined
        if self._pending.unreported or self._pending.joined:
            self._has_work.set()
        self._pending.joined.clear()

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._failed or self._heads or self._heaps or self._pending.unreported:
                started = time.perf_counter()
                report = self._next_report()
                if report is None:
                    continue
                try:
                    await self._write(report.info, report.why)
                except Exception as error:
                    self._retry_later(report, error)
                if self._store.is_busy():
                    await asyncio.sleep((time.perf_counter() - started) * _PAUSE_FACTOR)

    def _retry_later(self, report: _Report, error: Exception) -> None:
        namespace, name = report.info.key
        log.warning(
            "pending reason not written: workload=%s/%s retry_seconds=%g error=%s",
            namespace,
            name,
            _RETRY_SECONDS,
            error,
            exc_info=not isinstance(error, YardError),
        )

        def retry() -> None:
            self._failed.append(report)
            self._has_work.set()

        asyncio.get_running_loop().call_later(_RETRY_SECONDS, retry)

    def _next_report(self) -> _Report | None:
        workloads, pending = self._store.state.cache.workloads, self._pending
        if self._failed:
            report = self._failed.popleft()
            return report if workloads.get(report.info.key) is report.info else None
        if self._heads:
            key = next(iter(self._heads))
            decision = self._heads.pop(key)
            return _Report(decision.info, decision.why) if workloads.get(key) is decision.info else None
        if pending.unreported:
            key = next(iter(pending.unreported))
            del pending.unreported[key]
            is_known = key in workloads and key in pending.ineligible
            return _Report(workloads[key], pending.ineligible[key]) if is_known else None
        heap = next(iter(self._heaps))
        if not heap.is_inadmissible or not heap.unreported:
            del self._heaps[heap]
            return None
        key = next(iter(heap.unreported))
        del heap.unreported[key]
        return _Report(heap.workloads[key], heap.pending_reason) if key in heap.workloads else None

    async def _write(self, info: WorkloadInfo, why: ReasonMessage) -> None:
        if info.reserved_in or self._store.writer.is_writing(info.key):
            return
        message = why.message + machine_hint(self._store.state, info)
        before, info.pending_cause = info.pending_message, why.reason
        if before == message:
            return
        info.pending_message = message
        reason = messages.condition_reason(why.reason)
        try:
            status = lifecycle.set_pending(info.obj, reason, message, self._store.now())
            written = await self._store.writer.write_status(info.key, info.obj, status)
        except BaseException:
            info.pending_message = before
            raise
        if written is not None:
            advised = with_advice(self._store.state, info, ReasonMessage(why.reason, message))
            self._recorder.event(workload_reference(info), "Warning", reason, advised)


def workload_reference(info: WorkloadInfo) -> Object:
    """What an event refers to."""
    return {"apiVersion": names.API_VERSION, "kind": names.WORKLOAD.kind, "metadata": info.obj["metadata"]}
