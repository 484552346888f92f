"""Writes the ledger from one thread, in order and in batches, so that recovery never waits for a disk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from torchyard.elastic.coordinator.event_line import print_event
from torchyard.elastic.ledger import Ledger, LedgerEvent
from torchyard.elastic.wire import AppliedRow, Fence, StepsApplied, cut

T = TypeVar("T")
KEPT_EVENTS = 2000


class LedgerWriter:
    """Queues rows and events, and hands them to the writer thread on `flush`.

    Attributes:
        events: the newest events, also those that are not durable yet.
        commits: the durations of the newest commits in seconds.
        failure: the first error of the writer thread.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._rows: list[tuple[StepsApplied, int, str]] = []
        self._events: list[tuple[float, str, str, dict[str, Any]]] = []
        self.events: deque[LedgerEvent] = deque(ledger.events(limit=KEPT_EVENTS), maxlen=KEPT_EVENTS)
        self._last_id = self.events[-1]["id"] if self.events else 0
        self.commits: deque[float] = deque(maxlen=1000)
        self.failure: BaseException | None = None

    def add_steps(self, message: StepsApplied, *, world: int, by: str) -> None:
        self._rows.append((message, world, by))

    def add_event(self, reason: str, message: str, **facts: Any) -> None:
        at, message = time.time(), cut(message)
        print_event(reason, message, facts)
        self._last_id += 1
        self.events.append({"id": self._last_id, "at": at, "reason": reason, "message": message, "facts": facts})
        self._events.append((at, reason, message, facts))

    def reconcile(self, fence: Fence, agreed: int, *, members: tuple[str, ...], reason: str) -> None:
        self.flush()
        self.submit(lambda: self._ledger.reconcile(fence, agreed, members=members, reason=reason))

    def flush(self) -> None:
        """Hand everything queued to the writer: one transaction for each sender's rows, one for the events."""
        rows, self._rows = self._rows, []
        events, self._events = self._events, []
        grouped: dict[tuple[Fence, int, str], list[AppliedRow]] = {}
        for message, world, by in rows:
            grouped.setdefault((message.fence, world, by), []).extend(message.rows)
        for (fence, world, by), batch in grouped.items():
            self.submit(partial(self._timed_record, fence, batch, world, by))
        if events:
            self.submit(lambda: self._ledger.add_events(events))

    def _timed_record(self, fence: Fence, rows: list[AppliedRow], world: int, by: str) -> None:
        begun = time.perf_counter()
        self._ledger.record_steps(fence, rows, world=world, by=by)
        self.commits.append(time.perf_counter() - begun)

    def read(self, work: Callable[[], T]) -> Future[T]:
        """Run `work`, which changes nothing, in the writer thread. Its error is the caller's, not the ledger's."""
        return self._thread.submit(work)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` in the writer thread, after everything submitted before. Its error fails the job."""
        future = self._thread.submit(work)
        future.add_done_callback(self._keep_failure)
        return future

    def _keep_failure(self, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is not None and self.failure is None:
            self.failure = future.exception()

    def close(self) -> None:
        self.flush()
        self._thread.shutdown(wait=True)
        self._ledger.close()
