"""Watch events of resources with a conversion webhook: their objects are converted before they are encoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from torchyard.api.errors import StatusError
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Change
from torchyard.apiserver.verbs.watch import EventEncoder, watch

Chunk = TypeVar("Chunk")


class _PlainEvent(NamedTuple):
    change: Change
    record: Record
    is_first: bool


class _PlainEncoder:
    """Leaves the objects as they are stored; the other events are encoded already."""

    def __init__(self, encoder: EventEncoder[Any]) -> None:
        self.bookmark, self.error = encoder.bookmark, encoder.error

    def event(self, change: Change, record: Record) -> Any:
        return _PlainEvent(change, record, is_first=False)

    def first_event(self, change: Change, record: Record) -> Any:
        return _PlainEvent(change, record, is_first=True)

    def chunk(self, events: list[Any]) -> list[Any]:
        return events


def converted_watch(
    registry: Registry, ctx: RequestContext, encoder: EventEncoder[Chunk]
) -> AsyncGenerator[Chunk, None]:
    """`watch`, with objects in the version of the client. An object that cannot be converted ends it."""
    return _converted(registry, ctx, encoder, watch(registry, ctx, _PlainEncoder(encoder)))


async def _converted(
    registry: Registry, ctx: RequestContext, encoder: EventEncoder[Chunk], stream: AsyncGenerator[list[Any], None]
) -> AsyncGenerator[Chunk, None]:
    async with aclosing(stream):
        async for events in stream:
            plain = [event for event in events if isinstance(event, _PlainEvent)]
            try:
                records = await registry.converter.to_version(
                    ctx.resource, [event.record for event in plain], cached=True
                )
            except StatusError as error:
                yield encoder.chunk([encoder.error(error.body())])
                return
            converted = iter(records)
            yield encoder.chunk([_encoded(encoder, event, converted) for event in events])


def _encoded(encoder: EventEncoder[Any], event: Any, converted: Any) -> Any:
    if not isinstance(event, _PlainEvent):
        return event
    encode = encoder.first_event if event.is_first else encoder.event
    return encode(event.change, next(converted))
