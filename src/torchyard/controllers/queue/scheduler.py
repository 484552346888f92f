"""Admission: rounds of `core.queue.cycle`, and what they decide written into workloads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from torchyard.api.conditions import is_true
from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.queue.metrics import Metrics
from torchyard.controllers.queue.stores import State, Turn
from torchyard.core.queue import lifecycle
from torchyard.core.queue.cluster_queue import Lane
from torchyard.core.queue.preemption import Target
from torchyard.core.queue.scheduler import Admit, Preempt, Wait, cycle
from torchyard.core.queue.workload_info import Item
from torchyard.kube.event_recorder import EventRecorder

log = logging.getLogger(__name__)

# Few at once: all that are begun together are answered together, and whoever waits for the first of them waits for all.
_WRITES_AT_ONCE = 16
# Telling those who wait why they do must not keep others from being admitted.
_REST = 9.0


class Admission:
    """`run` until cancelled."""

    def __init__(self, state: State, recorder: EventRecorder, metrics: Metrics) -> None:
        self._state, self._recorder, self._metrics = state, recorder, metrics
        self._changed, self._to_tell = asyncio.Event(), asyncio.Event()
        self._waits: dict[tuple[str, str], Wait] = {}  # the first of a lane, when what it is told changes
        self._lanes: dict[Lane, None] = {}  # the others, who are told once
        self._room = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        state.on_change(self._changed.set)

    async def run(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self._state.informers))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds())
            group.create_task(self._tell())

    async def _rounds(self) -> None:
        book = self._state.book
        while True:
            self._changed.clear()
            started = time.perf_counter()
            decisions = cycle(book, self._state.now())
            if decisions:
                is_success = any(isinstance(one, Admit) for one in decisions)
                self._metrics.attempt(time.perf_counter() - started, is_success)
            decided: list[tuple[Admit | Preempt, list[Turn]]] = []
            for one in decisions:
                if isinstance(one, Wait):
                    self._note(one)
                else:
                    changed = [one.item] if isinstance(one, Admit) else [target.item for target in one.targets]
                    decided.append((one, [self._state.turn(item.key) for item in changed]))
            for work in decided:
                await self._room.acquire()
                self._spawn(self._carry_out(*work))
            self._lanes |= book.joined
            if book.untold or book.joined:
                self._to_tell.set()
            book.joined.clear()
            if not book.awake:
                await self._changed.wait()
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("admission failed", exc_info=error)

    def _note(self, wait: Wait) -> None:
        """Somebody will be told why it waits."""
        if wait.item.told != wait.message:
            self._waits[wait.item.key] = wait
        self._lanes[wait.lane] = None
        self._to_tell.set()

    async def _carry_out(self, decision: Admit | Preempt, turns: list[Turn]) -> None:
        try:
            match decision:
                case Admit():
                    await self._admit(decision, turns[0])
                case Preempt():
                    each = zip(decision.targets, turns, strict=True)
                    await asyncio.gather(*(self._preempt(decision, target, turn) for target, turn in each))
        except YardError as error:
            log.warning("admission of %s/%s: %s", *decision.item.key, error)

    async def _admit(self, decision: Admit, turn: Turn) -> None:
        item, now = decision.item, self._state.now()
        queue = self._state.book.pools[decision.queue].queue
        written = await self._state.write_next(
            turn, item.obj, lambda obj: lifecycle.reserve(obj, queue, decision.assignment, now)
        )
        if written is None:
            if decision.replaced is not None:
                self._state.reread(decision.replaced.key)
            return
        waited = max(0.0, now - item.queued_at)
        flavors = ",".join(sorted({flavor for flavor, _ in decision.assignment.usage}))
        self._tell_about(item, "Normal", messages.QUOTA_RESERVED, messages.reserved_event(queue.name, waited, flavors))
        self._metrics.reserved(queue.name, waited)
        if is_true(written["status"]["conditions"], messages.ADMITTED):
            self._tell_about(item, "Normal", messages.ADMITTED, messages.admitted_event(queue.name, 0))
            self._metrics.admitted(queue.name, waited)

    async def _preempt(self, decision: Preempt, target: Target, turn: Turn) -> None:
        item = target.item
        message = messages.preempted(
            target.reason,
            uid=decision.item.uid,
            job_uid=decision.item.job_uid,
            preemptor_path=decision.path,
            preemptee_path=decision.paths[item.key],
        )
        now = self._state.now()

        def evicted(obj: Object) -> Object:
            status = lifecycle.evict(obj, messages.BY_PREEMPTION, message, now, preempted=target.reason)
            if not obj["metadata"].get("ownerReferences"):  # there is no job to stop first
                status = lifecycle.release({**obj, "status": status}, now)
            return status

        if await self._state.write_next(turn, item.obj, evicted) is not None:
            self._tell_about(item, "Normal", messages.PREEMPTED, message)
            self._tell_about(item, "Normal", messages.evicted_event(messages.BY_PREEMPTION), message)
            said = f"Preempted {item.key[0]}/{item.key[1]} ({target.reason})"
            self._tell_about(decision.item, "Normal", messages.PREEMPTED_OTHER, said)
            self._metrics.evicted(item.place, messages.BY_PREEMPTION)

    async def _tell(self) -> None:
        """Write into those who wait why they do: the first in line when it changes, the others once."""
        book = self._state.book
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            while self._waits or self._lanes or book.untold:
                started = time.perf_counter()
                said = self._next_to_tell()
                if said is None:
                    continue
                try:
                    await self._write_wait(*said)
                except YardError as error:
                    log.warning("telling %s/%s why it waits: %s", *said[0].key, error)
                if self._state.is_busy():
                    await asyncio.sleep((time.perf_counter() - started) * _REST)

    def _next_to_tell(self) -> tuple[Item, str, str] | None:
        book = self._state.book
        if self._waits:
            key = next(iter(self._waits))
            wait = self._waits.pop(key)
            return (wait.item, wait.reason, wait.message) if book.items.get(key) is wait.item else None
        if book.untold:
            key = next(iter(book.untold))
            del book.untold[key]
            return (book.items[key], *book.outside[key]) if key in book.items and key in book.outside else None
        lane = next(iter(self._lanes))
        if not lane.is_blocked or not lane.untold:
            del self._lanes[lane]
            return None
        key = next(iter(lane.untold))
        del lane.untold[key]
        return (lane.items[key], *lane.said) if key in lane.items else None

    async def _write_wait(self, item: Item, reason: str, message: str) -> None:
        if item.place or item.told == message or self._state.is_writing(item.key):
            return
        message += self._hint(item, reason)
        if item.told == message:
            return
        item.told = message
        status = lifecycle.wait(item.obj, reason, message, self._state.now())
        if await self._state.write(item.key, item.obj, status) is not None:
            self._tell_about(item, "Warning", reason, message)

    def _hint(self, item: Item, reason: str) -> str:
        """What helps; on the plane's own queue which hardware this machine has, for those who ask for another."""
        pool = self._state.book.pool_of(item)
        if reason == messages.TOO_BIG and pool is not None:
            return messages.never_fits(pool.queue.name)
        asks = any("nvidia.com/gpu" in one.requests for one in item.shape.pod_sets)
        if pool is None or not pool.queue.is_local or not asks:
            return ""
        flavors = (self._state.book.flavors.get(name) for name in pool.queue.flavors)
        products = sorted(
            {one.labels["nvidia.com/gpu.product"] for one in flavors if one and "nvidia.com/gpu.product" in one.labels}
        )
        return f"; this machine has {', '.join(products) if products else 'no GPU'}"

    def _tell_about(self, item: Item, kind: Any, reason: str, message: str) -> None:
        about = {"apiVersion": names.API_VERSION, "kind": names.WORKLOAD.kind, "metadata": item.obj["metadata"]}
        self._recorder.event(about, kind, reason, message)
