"""Watch events of resources with a conversion webhook: their objects are converted, then selected, then encoded.

A selector names fields of the client's version, and a webhook may change labels. So the stored state before a change
is converted, too: an object that no longer matches counts as deleted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from torchyard.api.errors import StatusError
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Change, Filter, StoreEvent
from torchyard.apiserver.verbs.selection import select
from torchyard.apiserver.verbs.watch import EventEncoder, watch

Chunk = TypeVar("Chunk")


class _PlainEncoder:
    """Leaves changes as they are in the store; the other events are encoded already."""

    def __init__(self, encoder: EventEncoder[Any]) -> None:
        self.bookmark, self.error = encoder.bookmark, encoder.error

    def event(self, change: Change, record: Record) -> Any:
        return StoreEvent(change, record, None)

    first_event = event

    def chunk(self, events: list[Any]) -> list[Any]:
        return events


def converted_watch(
    registry: Registry, ctx: RequestContext, encoder: EventEncoder[Chunk]
) -> AsyncGenerator[Chunk, None]:
    """`watch`, with objects in the version of the client. An object that cannot be converted ends it."""
    matches = select(ctx).matches
    return _converted(registry, ctx, encoder, matches, watch(registry, ctx, _PlainEncoder(encoder), selecting=False))


async def _converted(
    registry: Registry,
    ctx: RequestContext,
    encoder: EventEncoder[Chunk],
    matches: Filter | None,
    stream: AsyncGenerator[list[Any], None],
) -> AsyncGenerator[Chunk, None]:
    encode = encoder.first_event
    async with aclosing(stream):
        async for events in stream:
            try:
                changes = await _convert(registry, ctx, events, with_previous=matches is not None)
            except StatusError as error:
                yield encoder.chunk([encoder.error(error.body())])
                return
            encoded: list[Any] = []
            for event in changes:
                if not isinstance(event, StoreEvent):
                    encoded.append(event)
                elif (change := event.change_for(matches)) is not None:
                    encoded.append(encode(change, event.visible_record(change)))
                    encode = encoder.event
            if encoded:
                yield encoder.chunk(encoded)


async def _convert(registry: Registry, ctx: RequestContext, events: list[Any], *, with_previous: bool) -> list[Any]:
    """The events, those of the store in the version of the client. Raises 500."""
    stored = [event for event in events if isinstance(event, StoreEvent)]
    previous = [event.previous for event in stored if event.previous is not None] if with_previous else []
    records = previous + [event.record for event in stored]
    converted = iter(await registry.converter.to_version(ctx.resource, records, cached=True))
    earlier = [next(converted) if with_previous and event.previous is not None else None for event in stored]
    changes = iter(
        [StoreEvent(event.change, next(converted), before) for event, before in zip(stored, earlier, strict=True)]
    )
    return [next(changes) if isinstance(event, StoreEvent) else event for event in events]
