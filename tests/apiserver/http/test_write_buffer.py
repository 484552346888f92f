"""The write buffer sends everything in order, at the end of the loop iteration or once it is full."""

from __future__ import annotations

import asyncio
from typing import cast

from torchyard.apiserver.http.write_buffer import WriteBuffer


class FakeTransport:
    """A transport that records what is written to it."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.data.append(data)


def as_transport(transport: FakeTransport) -> asyncio.Transport:
    return cast(asyncio.Transport, transport)


async def test_writes_of_one_loop_iteration_are_sent_at_its_end_in_order() -> None:
    buffer, first, second = WriteBuffer(), FakeTransport(), FakeTransport()
    for word in (b"a", b"b"):
        buffer.send(as_transport(first), word)
        buffer.send(as_transport(second), word * 2)
    assert (first.data, second.data) == ([], [])
    await asyncio.sleep(0)
    assert (first.data, second.data) == ([b"a", b"b"], [b"aa", b"bb"])
    buffer.send(as_transport(first), b"c")
    await asyncio.sleep(0)
    assert first.data == [b"a", b"b", b"c"]


async def test_a_large_write_is_sent_at_once() -> None:
    buffer, first = WriteBuffer(), FakeTransport()
    buffer.send(as_transport(first), b"head")
    buffer.send(as_transport(first), b"x" * (1 << 20))
    assert [len(data) for data in first.data] == [4, 1 << 20]
    await asyncio.sleep(0)
    assert len(first.data) == 2


async def test_an_explicit_flush_sends_nothing_twice() -> None:
    buffer, first = WriteBuffer(), FakeTransport()
    buffer.send(as_transport(first), b"last")
    buffer.flush()
    await asyncio.sleep(0)
    assert first.data == [b"last"]
