"""Events: what was decided and why, told once and counted after that.

The same event about the same object becomes one with a count, as client-go's correlator does it. An event's name stands
for what it tells, so that a recorder that has just started finds what the one before it told. A recorder never makes
its caller wait: events are written in the background, and one that cannot be written is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from torchyard.api.errors import StatusError, YardError
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client
from torchyard.kube.refs import EVENTS

log = logging.getLogger(__name__)

Object = dict[str, Any]
_REMEMBERED = 4096
_MESSAGE_LIMIT = 1024


class Told(NamedTuple):
    kind: str
    reason: str
    message: str
    once: bool


class Recorder:
    def __init__(
        self, client: Client, component: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._counts: OrderedDict[str, int] = OrderedDict()  # of events, by name
        self._queue: asyncio.Queue[tuple[Object, Told]] = asyncio.Queue(maxsize=10_000)
        self._is_writing = False

    def event(
        self, about: Object, kind: Literal["Normal", "Warning"], reason: str, message: str, *, once: bool = False
    ) -> None:
        """Tell something about an object (with kind, apiVersion and metadata). `once`: and do not count it again."""
        try:
            self._queue.put_nowait((_reference(about), Told(kind, reason, message[:_MESSAGE_LIMIT], once)))
        except asyncio.QueueFull:
            log.warning("too many events at once; dropped %s about %s", reason, about["metadata"].get("name"))

    @property
    def pending(self) -> bool:
        """Whether something is still to be written."""
        return self._is_writing or not self._queue.empty()

    async def run(self) -> None:
        while True:
            about, told = await self._queue.get()
            self._is_writing = True
            try:
                await self._write(about, told)
            except YardError as error:
                log.warning("the event %s about %s could not be written: %s", told.reason, about.get("name"), error)
            finally:
                self._is_writing = False

    async def _write(self, about: Object, told: Told) -> None:
        name, namespace = self._name(about, told), about.get("namespace") or "default"
        if name not in self._counts:
            if await self._create(name, namespace, about, told):
                return
            there = await self._client.find(EVENTS, name, namespace)
            self._remember(name, int((there or {}).get("count") or 1))
        if not told.once and not await self._count(name, namespace):
            await self._create(name, namespace, about, told)

    async def _create(self, name: str, namespace: str, about: Object, told: Told) -> bool:
        """Whether it is new."""
        now = to_rfc3339(self._clock())
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "type": told.kind,
            "reason": told.reason,
            "message": told.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._client.create(EVENTS, event, namespace)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        self._remember(name, 1)
        return True

    async def _count(self, name: str, namespace: str) -> bool:
        """Whether it was still there to be counted: servers forget events after an hour."""
        count = self._counts[name] + 1
        try:
            patch = {"count": count, "lastTimestamp": to_rfc3339(self._clock())}
            await self._client.patch(EVENTS, name, patch, namespace)
        except StatusError as error:
            if error.status != 404:
                raise
            return False
        self._remember(name, count)
        return True

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)

    def _name(self, about: Object, told: Told) -> str:
        """The object's name and sixteen hex digits that stand for what is told."""
        said = "\0".join((self._component, about.get("uid", ""), told.kind, told.reason, told.message))
        return f"{about.get('name', '')[:200]}.{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}"


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
