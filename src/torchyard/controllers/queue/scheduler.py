"""Runs scheduling cycles of `core.queue.scheduler`, and writes what they decide into workloads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from torchyard.api.conditions import is_true
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.pending_reporter import PendingReporter, workload_reference
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.writer import QueuedWrite
from torchyard.core.queue import lifecycle
from torchyard.core.queue.decisions import Admit, Preempt, SchedulingFailure, StayPending
from torchyard.core.queue.minimal_targets import PreemptionTarget
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.workload_info import WorkloadInfo
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.supervisor import run_parts

log = logging.getLogger(__name__)

# Few: writes that start together are answered together, so the first of them would wait for all.
_CONCURRENT_WRITES = 16


class SchedulerController:
    """`run` until cancelled."""

    def __init__(self, store: QueueStore, recorder: EventRecorder, metrics: QueueMetrics) -> None:
        self._store, self._recorder, self._metrics = store, recorder, metrics
        self._reporter = PendingReporter(store, recorder)
        self._changed = asyncio.Event()
        self._write_slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        self._tasks: set[asyncio.Task[None]] = set()
        store.on_change(self._changed.set)

    async def run(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self._store.informers))
        await run_parts(cycles=self._run_cycles, reporter=self._reporter.run)

    async def _run_cycles(self) -> None:
        state = self._store.state
        while True:
            self._changed.clear()
            started = time.perf_counter()
            decisions = schedule(state, self._store.now())
            if decisions:
                is_success = any(isinstance(decision, Admit) for decision in decisions)
                self._metrics.admission_attempt(time.perf_counter() - started, is_success)
            # All writes are queued before the first starts: from now on the watch must not undo what was assumed.
            to_write: list[tuple[Admit | Preempt, list[QueuedWrite]]] = []
            for decision in decisions:
                match decision:
                    case StayPending():
                        self._reporter.add(decision)
                    case SchedulingFailure(cluster_queue, error):
                        log.error("scheduling failed: cluster_queue=%s", cluster_queue, exc_info=error)
                    case _:
                        to_write.append((decision, self._enqueue_writes(decision)))
            await self._start_writes(to_write)
            self._reporter.collect()
            if not state.pending.active:
                await self._changed.wait()
            await asyncio.sleep(0)

    async def _start_writes(self, to_write: list[tuple[Admit | Preempt, list[QueuedWrite]]]) -> None:
        remaining = deque(to_write)
        try:
            while remaining:
                await self._write_slots.acquire()
                self._spawn(self._write_decision(*remaining.popleft()))
        finally:
            # Only after a failure: what is queued but never written would count as being written for ever.
            for decision, writes in remaining:
                for info, write in zip(_infos(decision), writes, strict=True):
                    self._store.writer.abandon(write, info.obj)

    def _enqueue_writes(self, decision: Admit | Preempt) -> list[QueuedWrite]:
        return [self._store.writer.enqueue(info.key) for info in _infos(decision)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._write_slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("scheduling decision not written", exc_info=error)

    async def _write_decision(self, decision: Admit | Preempt, writes: list[QueuedWrite]) -> None:
        try:
            match decision:
                case Admit():
                    await self._write_admission(decision, writes[0])
                case Preempt():
                    targets = zip(decision.targets, writes, strict=True)
                    await asyncio.gather(*(self._write_eviction(decision, target, write) for target, write in targets))
        except YardError as error:
            log.warning("scheduling decision not written: workload=%s/%s error=%s", *decision.info.key, error)

    async def _write_admission(self, decision: Admit, write: QueuedWrite) -> None:
        info, now = decision.info, self._store.now()
        cq = self._store.state.cache.cluster_queues.get(decision.cluster_queue)
        if cq is None:  # it was deleted since the decision
            self._store.writer.abandon(write, info.obj)
            return
        spec = cq.spec
        written = await self._store.writer.write_queued(
            write, info.obj, lambda obj: lifecycle.reserve_quota(obj, spec, decision.assignment, now)
        )
        if written is None:
            if decision.replaced is not None:
                self._store.discard_assumption(decision.replaced.key)
            return
        waited = max(0.0, now - info.queued_at)
        flavors = ",".join(sorted({flavor for flavor, _ in decision.assignment.usage}))
        message = messages.quota_reserved_event(spec.name, waited, flavors)
        self._record(info, messages.QUOTA_RESERVED, message)
        self._metrics.quota_reserved(spec.name, waited)
        if is_true(written["status"]["conditions"], messages.ADMITTED):
            self._record(info, messages.ADMITTED, messages.admitted_event(spec.name, 0))
            self._metrics.admitted(spec.name, waited)

    async def _write_eviction(self, decision: Preempt, target: PreemptionTarget, write: QueuedWrite) -> None:
        info = target.info
        message = messages.preempted_by(
            target.reason,
            uid=decision.info.uid,
            job_uid=decision.info.job_uid,
            preemptor_path=decision.path,
            preemptee_path=decision.target_paths[info.key],
        )
        now = self._store.now()

        def evict(obj: Object) -> Object:
            status = lifecycle.evict(obj, messages.REASON_PREEMPTED, message, now, preempted=target.reason)
            if not obj["metadata"].get("ownerReferences"):  # there is no job to stop first
                status = lifecycle.release_quota({**obj, "status": status}, now, requeue=False)
            return status

        if await self._store.writer.write_queued(write, info.obj, evict) is not None:
            self._record(info, messages.PREEMPTED, message)
            self._record(info, messages.evicted_event(messages.REASON_PREEMPTED), message)
            preempted = messages.preempted_workload(*info.key, target.reason)
            self._record(decision.info, messages.EVENT_PREEMPTED_WORKLOAD, preempted)
            self._metrics.evicted(info.reserved_in, messages.REASON_PREEMPTED)

    def _record(self, info: WorkloadInfo, reason: str, message: str) -> None:
        self._recorder.event(workload_reference(info), "Normal", reason, message)


def _infos(decision: Admit | Preempt) -> list[WorkloadInfo]:
    """The workloads that a decision writes."""
    return [decision.info] if isinstance(decision, Admit) else [target.info for target in decision.targets]
