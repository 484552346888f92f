"""Events: what was decided and why, told once and counted after that.

The same event about the same object becomes one with a count, as client-go's correlator does it. An event's name ends
with the time at which it was told, as client-go names them: that orders events within a second, which their timestamps
do not. A recorder that has just started reads first what the one before it told, and counts on. It never makes its
caller wait: events are written in the background, and one that cannot be written is logged. While there is something
more important to do they take a tenth of the time; when too many have come together the newest are dropped, as
client-go does it.
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

_REMEMBERED = 4096
_REST = 9.0
_MESSAGE_LIMIT = 1024
_EPOCH = datetime.fromtimestamp(0, UTC)


class PendingEvent(NamedTuple):
    about: Object
    kind: str
    reason: str
    message: str
    once: bool
    at: datetime

    @property
    def namespace(self) -> str:
        return self.about.get("namespace") or "default"


class RecordedEvent(NamedTuple):
    """An event that the server has."""

    name: str
    times: int


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
        """`is_busy`: whether there is something more important to write than events."""
        self._client = client
        self._is_busy = is_busy
        self._component = component
        self._clock = clock
        self._known: OrderedDict[bytes, RecordedEvent] = OrderedDict()  # by what they tell
        self._read: set[str] = set()  # the namespaces whose events of before are known
        self._latest = 0
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue(maxsize=limit)
        self._about: Object = {}
        self._is_writing = False
        self._dropped = 0

    def event(
        self, about: Object, kind: Literal["Normal", "Warning"], reason: str, message: str, *, once: bool = False
    ) -> None:
        """Tell something about an object (with kind, apiVersion and metadata). `once`: and do not count it again."""
        told = PendingEvent(self._reference(about), kind, reason, message[:_MESSAGE_LIMIT], once, self._clock())
        try:
            self._queue.put_nowait(told)
        except asyncio.QueueFull:
            if not self._dropped:
                log.warning("too many events at once; dropped %s about %s", reason, about["metadata"].get("name"))
            self._dropped += 1

    def _reference(self, about: Object) -> Object:
        """Thousands of events may wait, and most are about the same state of an object as the one before."""
        reference = _reference(about)
        if reference != self._about:
            self._about = reference
        return self._about

    @property
    def pending(self) -> bool:
        """Whether something is still to be written."""
        return self._is_writing or not self._queue.empty()

    async def run(self) -> None:
        self._read.clear()  # another one may have told something since this one ran last
        while True:
            told = await self._queue.get()
            self._is_writing, started = True, time.perf_counter()
            try:
                await self._write(told)
            except YardError as error:
                log.warning("the event %s about %s could not be written: %s", told.reason, told.about["name"], error)
            finally:
                self._is_writing = False
            if self._is_busy():
                await asyncio.sleep((time.perf_counter() - started) * _REST)
            if self._dropped and self._queue.empty():
                log.warning("%d events were dropped", self._dropped)
                self._dropped = 0

    async def _write(self, told: PendingEvent) -> None:
        if told.namespace not in self._read:
            await self._read_earlier(told.namespace)
        key = _key(told.about, told.kind, told.reason, told.message)
        known = self._known.get(key)
        if known is None or not (told.once or await self._count(key, known, told)):
            await self._create(key, told)

    async def _read_earlier(self, namespace: str) -> None:
        """What was told here before this recorder began, the oldest first."""
        self._read.add(namespace)
        fields = f"reportingComponent={self._component}"
        try:
            found = (await self._client.list(EVENTS, namespace, fields=fields)).items
        except YardError as error:
            log.warning("the events in %s cannot be read, so some may be told again: %s", namespace, error)
            return
        for one in sorted(found, key=lambda one: str(one.get("lastTimestamp") or "")):
            key = _key(one["involvedObject"], one.get("type", ""), one.get("reason", ""), one.get("message", ""))
            self._remember(key, RecordedEvent(one["metadata"]["name"], int(one.get("count") or 1)))

    async def _create(self, key: bytes, told: PendingEvent) -> None:
        now = to_rfc3339(told.at)
        event: Object = {
            "involvedObject": told.about,
            "type": told.kind,
            "reason": told.reason,
            "message": told.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        while True:
            name = self._name(told)
            try:
                event["metadata"] = {"name": name, "namespace": told.namespace}
                await self._client.create(EVENTS, event, told.namespace)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
            else:
                self._remember(key, RecordedEvent(name, 1))
                return

    async def _count(self, key: bytes, known: RecordedEvent, told: PendingEvent) -> bool:
        """Whether it was still there to be counted: servers forget events after an hour."""
        count = known.times + 1
        try:
            patch = {"count": count, "lastTimestamp": to_rfc3339(told.at)}
            await self._client.patch(EVENTS, known.name, patch, told.namespace)
        except StatusError as error:
            if error.status != 404:
                raise
            return False
        self._remember(key, RecordedEvent(known.name, count))
        return True

    def _remember(self, key: bytes, known: RecordedEvent) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _name(self, told: PendingEvent) -> str:
        """The object's name and a time in nanoseconds, later than that of every name before it."""
        self._latest = max(self._latest + 1, (told.at - _EPOCH) // timedelta(microseconds=1) * 1000)
        return f"{told.about['name'][:200]}.{self._latest:016x}"


def _key(about: Object, kind: str, reason: str, message: str) -> bytes:
    """Stands for what is told."""
    said = "\0".join((about.get("uid", ""), kind, reason, message))
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def _reference(obj: Object) -> Object:
    metadata = obj["metadata"]
    found = {
        "kind": obj.get("kind", ""),
        "apiVersion": obj.get("apiVersion", ""),
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    return {key: value for key, value in found.items() if value}
