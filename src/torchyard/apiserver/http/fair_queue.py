"""Whose request runs next: fair queueing among users, and among the connections of a user.

One event loop runs all requests, so time is what they compete for. Requests run at once while they are few. Once they
have run for `slice_seconds` without a pause, the rest wait until the loop has looked at its sockets, and then the user
who has had the least time goes first (start-time fair queueing, as API priority and fairness in kube-apiserver). The
same rule orders the connections of one user: a connection that asks rarely does not wait for those that flood.

A user has a *tag*, the time it has had divided by its weight. A user who was idle starts at the tag of the request
that started last, so that idle time is no credit.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from itertools import count
from math import inf

from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.http.limits import HttpLimits

# Administrators get so many times the share of others.
_MASTERS_WEIGHT = 8.0
_MAX_FLOWS = 4096
_MAX_BATCH = 256
# How much of the last cost goes into the estimate of the next one.
_SMOOTHING = 0.2
# A request is charged for at most so many seconds: what takes longer waits for something, such as a webhook.
_MAX_CHARGE = 0.25
# So many cheap requests run even when the slice is over: on a busy machine it may be over because of other processes.
_CHEAP_SECONDS, _CHEAP_NUMBER = 0.0005, 64


class QueueFull(Exception):
    """Too many requests of one user wait, or one has waited for too long."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ConnectionShare:
    """What one connection has had of its user's time."""

    __slots__ = ("charged", "tag")

    def __init__(self) -> None:
        self.tag = 0.0
        self.charged = 0.0  # for the current request, in advance


class Flow:
    """The requests of one user."""

    __slots__ = (
        "blocked",
        "body_bytes",
        "connections",
        "entry",
        "entry_tag",
        "estimate",
        "response_bytes",
        "tag",
        "user",
        "virtual_time",
        "waiting",
        "weight",
    )

    def __init__(self, user: User) -> None:
        self.user = user
        self.weight = _MASTERS_WEIGHT if MASTERS in user.groups else 1.0
        self.tag = 0.0
        self.virtual_time = 0.0  # the tag of the connection that went last
        self.estimate = 0.0  # seconds of a request
        self.waiting: list[tuple[float, int, _Waiter]] = []  # a heap, by the tag of the connection
        self.entry = 0  # the number of its entry in the queue; 0: it has none
        self.entry_tag = 0.0
        self.connections = 0
        self.body_bytes = 0
        self.response_bytes = 0
        self.blocked: deque[asyncio.Future[None]] = deque()  # until responses have been read


class _Waiter:
    __slots__ = ("flow", "number", "share", "since", "turn")

    def __init__(self, flow: Flow, share: ConnectionShare, number: int, turn: asyncio.Future[None]) -> None:
        self.flow = flow
        self.share = share
        self.number = number
        self.turn = turn
        self.since = inf


class FairQueue:
    def __init__(self, limits: HttpLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._flows: dict[str, Flow] = {}
        # A heap of the flows with waiting requests, by tag. An entry counts if its number is the flow's.
        self._queue: list[tuple[float, int, Flow]] = []
        self._numbers = count(1)
        self._virtual_time = 0.0
        self._slice_end = 0.0  # 0: no request has run since the loop looked at its sockets
        self._is_scheduled = False
        self._batch = 8
        self._started = 0  # of the batch
        self._in_slice = 0  # requests that did not wait
        self._slice_seconds = limits.slice_seconds
        self.waiting = 0
        self.response_bytes = 0
        self.rejected: dict[str, int] = {}  # by reason

    def flow(self, user: User) -> Flow:
        flow = self._flows.get(user.name)
        if flow is None:
            if len(self._flows) >= _MAX_FLOWS:
                self._forget_idle_flows()
            flow = self._flows[user.name] = Flow(user)
        return flow

    def start(self, flow: Flow, share: ConnectionShare, now: float) -> bool:
        """Whether a request may run at once; otherwise it must `wait`. Every request passes here: it must be cheap."""
        if self.waiting:
            return False
        if not self._slice_end:
            self._slice_end = now + self._slice_seconds
            self._schedule()
        elif now >= self._slice_end and (flow.estimate >= _CHEAP_SECONDS or self._in_slice >= _CHEAP_NUMBER):
            return False
        self._in_slice += 1
        if flow.tag < self._virtual_time:
            flow.tag = self._virtual_time
        else:
            self._virtual_time = flow.tag
        if share.tag < flow.virtual_time:
            share.tag = flow.virtual_time
        else:
            flow.virtual_time = share.tag
        return True

    async def wait(self, flow: Flow, share: ConnectionShare, *, is_new: bool = True) -> None:
        """Wait until it is this request's turn. Raises `QueueFull`, unless it is not new and goes on."""
        if is_new and len(flow.waiting) >= self._limits.queue_length:
            raise self.reject("queue-full")
        waiter = _Waiter(flow, share, next(self._numbers), self._loop.create_future())
        if is_new:
            waiter.since = time.monotonic()
        while True:
            self._push(waiter)
            await waiter.turn
            if self._has_time():
                self._started += 1
                self._charge(flow, share)
                return
            waiter.turn = self._loop.create_future()

    def finish(self, flow: Flow, share: ConnectionShare, seconds: float) -> None:
        """A request has run for so many seconds. One that waited was charged an estimate in advance."""
        if seconds > _MAX_CHARGE:  # noqa: PLR1730 - a call of min() takes longer
            seconds = _MAX_CHARGE
        flow.tag += (seconds - share.charged) / flow.weight
        flow.estimate += _SMOOTHING * (seconds - flow.estimate)
        share.tag += seconds
        share.charged = 0.0

    def holds_too_much(self, flow: Flow) -> bool:
        """Whether the user has too many responses that wait to be read."""
        limits = self._limits
        return flow.response_bytes > limits.user_response_bytes or (
            flow.response_bytes > 0 and self.response_bytes > limits.total_response_bytes
        )

    async def wait_for_readers(self, flow: Flow) -> None:
        """Wait until the user's clients have read earlier responses. Raises `QueueFull`."""
        if len(flow.blocked) >= self._limits.queue_length:
            raise self.reject("queue-full")
        turn = self._loop.create_future()
        flow.blocked.append(turn)
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await turn
        except TimeoutError:
            raise self.reject("response-bytes") from None

    def hold_response(self, flow: Flow, size: int) -> None:
        """A response of so many bytes waits to be read; a negative size: it was read."""
        flow.response_bytes += size
        self.response_bytes += size
        while flow.blocked and not self.holds_too_much(flow):
            turn = flow.blocked.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def blocked_flows(self) -> list[Flow]:
        """The users whose requests wait until responses have been read."""
        return [flow for flow in self._flows.values() if flow.blocked]

    def expire(self, now: float) -> None:
        """Reject what has waited for too long."""
        oldest = now - self._limits.queue_seconds
        for flow in [flow for _, number, flow in self._queue if number == flow.entry]:
            for _, _, waiter in flow.waiting:
                if waiter.since < oldest and not waiter.turn.done():
                    waiter.turn.set_exception(self.reject("time-out"))
            waiting = [entry for entry in flow.waiting if not entry[2].turn.done()]
            self.waiting -= len(flow.waiting) - len(waiting)
            flow.waiting = waiting
            heapq.heapify(flow.waiting)

    def reject(self, reason: str) -> QueueFull:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return QueueFull(reason)

    def _has_time(self) -> bool:
        now = time.monotonic()
        if not self._slice_end:
            self._slice_end = now + self._slice_seconds
            self._schedule()
            return True
        return now < self._slice_end

    def _charge(self, flow: Flow, share: ConnectionShare) -> None:
        """A request that waited starts: charge what it will probably cost."""
        if flow.tag < self._virtual_time:
            flow.tag = self._virtual_time
        else:
            self._virtual_time = flow.tag
        share.charged = flow.estimate
        flow.tag += flow.estimate / flow.weight
        if share.tag < flow.virtual_time:
            share.tag = flow.virtual_time
        else:
            flow.virtual_time = share.tag

    def _push(self, waiter: _Waiter) -> None:
        """Let a request wait. One that was given its turn in vain keeps its place, and so does its user."""
        flow = waiter.flow
        heapq.heappush(flow.waiting, (max(waiter.share.tag, flow.virtual_time), waiter.number, waiter))
        self.waiting += 1
        tag = max(flow.tag, self._virtual_time)
        if not flow.entry or flow.entry_tag > tag:
            self._push_flow(flow, tag)
        self._schedule()

    def _push_flow(self, flow: Flow, tag: float) -> None:
        flow.entry, flow.entry_tag = next(self._numbers), tag
        heapq.heappush(self._queue, (tag, flow.entry, flow))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_slice)

    def _next_slice(self) -> None:
        """The loop has looked at its sockets: give the next requests their turn."""
        self._is_scheduled = False
        self._slice_end = 0.0
        self._in_slice = 0
        if not self.waiting:
            self._batch, self._started = max(8, self._batch), 0
            return
        # As many as the slice will hold, going by the last one; those that find it over wait again.
        self._batch = min(_MAX_BATCH, max(1, self._started * 2) if self._started else self._batch)
        self._started = 0
        woken = 0
        while woken < self._batch and self._queue:
            tag, number, flow = heapq.heappop(self._queue)
            if number != flow.entry:
                continue
            current = max(flow.tag, self._virtual_time)
            if not flow.waiting:
                flow.entry = 0
            elif current > tag:  # requests that were running have ended since
                self._push_flow(flow, current)
            else:
                woken += self._wake_next(flow)
                # Only the order of this batch: the user is charged when a request starts.
                self._push_flow(flow, tag + flow.estimate / flow.weight)
        if woken:
            self._schedule()

    def _wake_next(self, flow: Flow) -> bool:
        """Give the next connection of a user its turn; False if it has given up."""
        _, _, waiter = heapq.heappop(flow.waiting)
        self.waiting -= 1
        if waiter.turn.done():
            return False
        waiter.turn.set_result(None)
        return True

    def _forget_idle_flows(self) -> None:
        """A flow without requests or connections whose tag is in the past equals a new one."""
        for name, flow in list(self._flows.items()):
            if not (flow.waiting or flow.connections or flow.body_bytes) and flow.tag <= self._virtual_time:
                del self._flows[name]
