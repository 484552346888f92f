"""Recording Kubernetes events, with client-go's aggregation.

Repeated events about an object become one event with a count. Its name ends with the time in nanoseconds, as in
client-go: this orders events within a second, which timestamps do not. A new recorder first reads the existing events
of its component and continues their counts. Recording never blocks the caller: events are written in the background,
and failures are logged. While more important work is pending, events take a tenth of the time. When the queue is full,
new events are dropped, as in client-go.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import EVENTS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client

log = logging.getLogger(__name__)

_CACHE_SIZE = 4096
# While other work is pending, pause this many times as long as the write took.
_BUSY_PAUSE_FACTOR, _BUSY_CHECK_SECONDS = 9.0, 0.1
_MESSAGE_LIMIT = 1024
# client-go's limits: so many repetitions of an event are written at once, and then one every five minutes.
_BURST, _REFILL_SECONDS = 25.0, 300.0
_EPOCH = datetime.fromtimestamp(0, UTC)


class PendingEvent(NamedTuple):
    """An event that is not written yet."""

    involved: Object
    type: str
    reason: str
    message: str
    once: bool
    at: datetime

    @property
    def namespace(self) -> str:
        return self.involved.get("namespace") or "default"


class RecordedEvent(NamedTuple):
    """An event that exists on the server."""

    name: str
    times: int
    tokens: float = 0.0  # how many repetitions may still be written, at the time of the last one
    at: datetime | None = None

    def repeated(self, at: datetime) -> RecordedEvent | None:
        """After one more repetition; None if there were too many (client-go's EventSourceObjectSpamFilter)."""
        elapsed = (at - self.at).total_seconds() if self.at is not None else 0.0
        tokens = min(self.tokens + max(elapsed, 0.0) / _REFILL_SECONDS, _BURST)
        return RecordedEvent(self.name, self.times + 1, tokens - 1, at) if tokens >= 1 else None


class EventRecorder:
    def __init__(
        self,
        client: Client,
        component: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        limit: int = 10_000,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_busy` returns whether there is more important work than writing events."""
        self._client = client
        self._is_busy = is_busy
        self._component = component
        self._clock = clock
        self._recorded: OrderedDict[bytes, RecordedEvent] = OrderedDict()  # by content
        self._read: OrderedDict[str, None] = OrderedDict()  # namespaces whose existing events have been read
        self._latest = 0
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue(maxsize=limit)
        self._last_reference: Object = {}
        self._is_writing = False
        self._dropped = 0

    def event(
        self, obj: Object, event_type: Literal["Normal", "Warning"], reason: str, message: str, *, once: bool = False
    ) -> None:
        """Record an event about an object (with kind, apiVersion and metadata). `once`: do not count repetitions."""
        event = PendingEvent(self._reference(obj), event_type, reason, message[:_MESSAGE_LIMIT], once, self._clock())
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            if not self._dropped:
                log.warning(
                    "event queue is full, dropping events: reason=%s name=%s", reason, obj["metadata"].get("name")
                )
            self._dropped += 1

    def _reference(self, obj: Object) -> Object:
        """Share equal references: thousands of events may be queued, most about the same object as the previous one."""
        reference = _reference(obj)
        if reference != self._last_reference:
            self._last_reference = reference
        return self._last_reference

    @property
    def queued(self) -> int:
        """How many events are not written yet."""
        return self._queue.qsize()

    @property
    def pending(self) -> bool:
        """Whether events are queued or being written."""
        return self._is_writing or not self._queue.empty()

    async def run(self) -> None:
        self._read.clear()  # another process may have recorded events since this one last ran
        while True:
            event = await self._queue.get()
            self._is_writing, started = True, time.perf_counter()
            try:
                await self._write(event)
            except YardError as error:
                log.warning(
                    "cannot write event: reason=%s name=%s error=%s", event.reason, event.involved["name"], error
                )
            except Exception:
                log.exception(
                    "event not written because of an unexpected exception: reason=%s name=%s",
                    event.reason,
                    event.involved["name"],
                )
            finally:
                self._is_writing = False
            await self._rest((time.perf_counter() - started) * _BUSY_PAUSE_FACTOR)
            if self._dropped and self._queue.empty():
                log.warning("events were dropped: count=%d", self._dropped)
                self._dropped = 0

    async def _rest(self, seconds: float) -> None:
        """Leave the time to more important work, as long as there is some: a slow server would make long pauses."""
        end = time.perf_counter() + seconds
        while self._is_busy():
            left = end - time.perf_counter()
            if left <= 0:
                return
            await asyncio.sleep(min(left, _BUSY_CHECK_SECONDS))

    async def _write(self, event: PendingEvent) -> None:
        if event.namespace not in self._read:
            await self._read_existing(event.namespace)
        key = _key(event.involved, event.type, event.reason, event.message)
        recorded = self._recorded.get(key)
        if recorded is None or not (event.once or await self._increment(key, recorded, event)):
            await self._create(key, event)

    async def _read_existing(self, namespace: str) -> None:
        """Read the events that this component recorded earlier, the oldest first.

        Of a namespace with many events nothing is read, and repetitions start anew, as always with client-go.
        """
        self._read[namespace] = None
        if len(self._read) > _CACHE_SIZE:
            self._read.popitem(last=False)
        fields = f"reportingComponent={self._component}"
        try:
            if await self._count(namespace) > _CACHE_SIZE:
                return
            events = (await self._client.list(EVENTS, namespace, fields=fields)).items
        except YardError as error:
            log.warning("cannot read earlier events, so some may be repeated: namespace=%s error=%s", namespace, error)
            return
        for event in sorted(events, key=lambda event: str(event.get("lastTimestamp") or "")):
            key = _key(
                event["involvedObject"], event.get("type", ""), event.get("reason", ""), event.get("message", "")
            )
            self._cache(key, RecordedEvent(event["metadata"]["name"], int(event.get("count") or 1), _BURST))

    async def _count(self, namespace: str) -> int:
        first = await self._client.raw("GET", f"{EVENTS.path(namespace)}?limit=1")
        return 1 + int(first["metadata"].get("remainingItemCount") or 0)

    async def _create(self, key: bytes, pending: PendingEvent) -> None:
        now = to_rfc3339(pending.at)
        event: Object = {
            "involvedObject": pending.involved,
            "type": pending.type,
            "reason": pending.reason,
            "message": pending.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        while True:
            name = self._name(pending)
            try:
                event["metadata"] = {"name": name, "namespace": pending.namespace}
                await self._client.create(EVENTS, event, pending.namespace)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
            else:
                self._cache(key, RecordedEvent(name, 1, _BURST - 1, pending.at))
                return

    async def _increment(self, key: bytes, recorded: RecordedEvent, event: PendingEvent) -> bool:
        """Increment the count; return False if the event no longer exists. Servers delete events after an hour.

        As client-go, a repetition beyond the limit is neither written nor counted.
        """
        repeated = recorded.repeated(event.at)
        if repeated is None:
            return True
        try:
            patch = {"count": repeated.times, "lastTimestamp": to_rfc3339(event.at)}
            await self._client.patch(EVENTS, recorded.name, patch, event.namespace)
        except StatusError as error:
            if error.status != 404:
                raise
            return False
        self._cache(key, repeated)
        return True

    def _cache(self, key: bytes, recorded: RecordedEvent) -> None:
        self._recorded[key] = recorded
        self._recorded.move_to_end(key)
        while len(self._recorded) > _CACHE_SIZE:
            self._recorded.popitem(last=False)

    def _name(self, event: PendingEvent) -> str:
        """Return the object's name with a time in nanoseconds that is later than in all previous names."""
        self._latest = max(self._latest + 1, (event.at - _EPOCH) // timedelta(microseconds=1) * 1000)
        return f"{event.involved['name'][:200]}.{self._latest:016x}"


def _key(involved: Object, event_type: str, reason: str, message: str) -> bytes:
    """Return a hash of the content, by which repetitions are recognized."""
    content = "\0".join((involved.get("uid", ""), event_type, reason, message))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _reference(obj: Object) -> Object:
    metadata = obj["metadata"]
    reference = {
        "kind": obj.get("kind", ""),
        "apiVersion": obj.get("apiVersion", ""),
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    return {key: value for key, value in reference.items() if value}
