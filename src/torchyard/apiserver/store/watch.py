"""Store events (one change of one object), and the queue of events that one watcher has not taken yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal

import orjson

from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.errors import Compacted

Change = Literal["ADDED", "MODIFIED", "DELETED"]
Filter = Callable[[Record], bool]
Encoder = Callable[[Change, Record], Any]  # an event as the watcher's client receives it: bytes, or an object


class StoreEvent:
    """A change: `record` is the new state (of a deletion: the last state), `previous` the state before."""

    __slots__ = ("_encoded", "change", "previous", "record")

    def __init__(self, change: Change, record: Record, previous: Record | None) -> None:
        self.change = change
        self.record = record
        self.previous = previous
        self._encoded: dict[tuple[Change, Encoder], Any] = {}

    def change_for(self, matches: Filter | None) -> Change | None:
        """The change for a watcher with this selector: an object that stops matching counts as deleted."""
        if matches is None:
            return self.change
        was = self.previous is not None and self.change != "ADDED" and matches(self.previous)
        now = self.change != "DELETED" and matches(self.record)
        if was:
            return "MODIFIED" if now else "DELETED"
        return "ADDED" if now else None

    def encoded(self, change: Change, encoder: Encoder) -> Any:
        """The event in bytes, or as an object; encoded once for all watchers that share the encoder."""
        key = (change, encoder)
        data = self._encoded.get(key)
        if data is None:
            data = self._encoded[key] = encoder(change, self.visible_record(change))
        return data

    def visible_record(self, change: Change) -> Record:
        """The object as this change shows it.

        For an object that stops matching: its state before the change, at the revision of the change.
        """
        if change == self.change or change != "DELETED" or self.previous is None:
            return self.record
        last = self.previous.object()
        last["metadata"]["resourceVersion"] = str(self.record.rev)
        return Record(self.record.key, self.record.rev, orjson.dumps(last))


# Earlier changes, some at a time, each time with whether these are the last.
History = Iterator[tuple[list[StoreEvent], bool]]


class Watcher:
    """One subscription. The store ends a watcher that falls too far behind; its client lists or watches again."""

    MAX_EVENTS = 20_000
    MAX_BYTES = 32 << 20

    __slots__ = (
        "_bytes",
        "_encoder",
        "_first",
        "_history",
        "_queue",
        "_wake",
        "ended",
        "matches",
        "overrun",
        "prefix",
    )

    def __init__(
        self, prefix: str, matches: Filter | None, encoder: Encoder | None, first: Encoder | None = None
    ) -> None:
        """Without an encoder, `take` returns the StoreEvents themselves."""
        self.prefix = prefix
        self.matches = matches
        self._encoder = encoder
        self._first = first  # replaces the encoder for the first event
        self.ended = False
        self.overrun = False
        self._history: History | None = None
        self._queue: list[Any] = []
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None

    def replay(self, history: History) -> None:
        """Deliver these changes before all others."""
        self._history = history

    @property
    def is_replaying(self) -> bool:
        """Whether some of the earlier changes are not delivered yet."""
        return self._history is not None

    def skip_first(self) -> None:
        """The client has got its first event already."""
        self._first = None

    def offer(self, event: StoreEvent) -> None:
        if self.ended or not event.record.key.startswith(self.prefix):
            return
        change = event.change_for(self.matches)
        if change is None:
            return
        self._queue.append(self._encoded(event, change))
        self._bytes += len(event.record.data)
        if self._bytes > self.MAX_BYTES or len(self._queue) > self.MAX_EVENTS:
            self.overrun = True
            self.end()
        elif self._wake is not None:
            self._release()

    def _encoded(self, event: StoreEvent, change: Change) -> Any:
        encoder, self._first = self._first or self._encoder, None
        return event if encoder is None else event.encoded(change, encoder)

    def end(self) -> None:
        """No more events. Queued ones are still delivered, unless the watcher was overrun."""
        self.ended = True
        if self.overrun:
            self._queue, self._history = [], None
        self._release()

    async def take(self, within: float) -> list[Any] | None:
        """The queued events, or an empty list after `within` seconds without any, or None at the end.

        While there are earlier changes, some of them; the list may then be empty at once.
        """
        if self._history is not None:
            events, is_last = self._take_history(self._history)
            if not is_last:
                return events
            self._history = None
            if events:
                return events + self.drain()
        if not self._queue and not self.ended:
            loop = asyncio.get_running_loop()
            self._wake = loop.create_future()
            timer = loop.call_later(within, self._release)
            try:
                await self._wake
            finally:
                timer.cancel()
                self._wake = None
        return self.drain() or (None if self.ended else [])

    def _take_history(self, history: History) -> tuple[list[Any], bool]:
        """The next earlier changes, and whether they are the last."""
        try:
            changes, is_last = next(history, ([], True))
        except Compacted:  # the client gets this error when it watches again from where it is
            self.overrun = True
            self.end()
            return [], True
        events = [
            self._encoded(event, change)
            for event in changes
            if event.record.key.startswith(self.prefix) and (change := event.change_for(self.matches)) is not None
        ]
        return events, is_last

    def drain(self) -> list[Any]:
        """The queued events, without waiting."""
        queue, self._queue, self._bytes = self._queue, [], 0
        return queue

    def _release(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
