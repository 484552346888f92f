"""Events: what was decided and why, told once and counted after that.

The same event about the same object within ten minutes becomes one with a count, as client-go's correlator does it. A
recorder never makes its caller wait: events are written in the background, and one that cannot be written is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from torchyard.api.errors import StatusError, YardError
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client
from torchyard.kube.refs import EVENTS

log = logging.getLogger(__name__)

Object = dict[str, Any]
_REMEMBERED = 4096
_MESSAGE_LIMIT = 1024


class Recorder:
    def __init__(
        self, client: Client, component: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._seen: OrderedDict[tuple[str, ...], tuple[str, int]] = OrderedDict()
        self._queue: asyncio.Queue[tuple[Object, str, str, str]] = asyncio.Queue(maxsize=10_000)

    def event(self, about: Object, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Tell something about an object (with kind, apiVersion and metadata)."""
        try:
            self._queue.put_nowait((_reference(about), kind, reason, message[:_MESSAGE_LIMIT]))
        except asyncio.QueueFull:
            log.warning("too many events at once; dropped %s about %s", reason, about["metadata"].get("name"))

    async def run(self) -> None:
        while True:
            about, kind, reason, message = await self._queue.get()
            try:
                await self._write(about, kind, reason, message)
            except YardError as error:
                log.warning("the event %s about %s could not be written: %s", reason, about.get("name"), error)

    async def _write(self, about: Object, kind: str, reason: str, message: str) -> None:
        now = to_rfc3339(self._clock())
        namespace = about.get("namespace") or "default"
        key = (about.get("uid", ""), about.get("name", ""), kind, reason, message)
        if key in self._seen:
            name, count = self._seen[key]
            try:
                patch = {"count": count + 1, "lastTimestamp": now}
                await self._client.patch(EVENTS, name, patch, namespace)
            except StatusError as error:
                if error.status != 404:
                    raise
            else:
                self._remember(key, name, count + 1)
                return
        name = f"{about.get('name', '')[:200]}.{_stamp(self._clock(), key)}"
        await self._client.create(
            EVENTS,
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": about,
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
            namespace,
        )
        self._remember(key, name, 1)

    def _remember(self, key: tuple[str, ...], name: str, count: int) -> None:
        self._seen[key] = (name, count)
        self._seen.move_to_end(key)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def _stamp(now: datetime, key: tuple[str, ...]) -> str:
    """Sixteen hex digits: the time, made unique by what the event says."""
    said = int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=2).digest(), "big")
    return f"{int(now.timestamp() * 1e6) << 8 ^ said:016x}"


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
