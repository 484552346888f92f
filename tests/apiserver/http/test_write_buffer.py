"""The outbox: everything is sent, in order, at the end of the turn or when there is much of it."""

from __future__ import annotations

import asyncio
from typing import cast

from torchyard.apiserver.http.write_buffer import WriteBuffer


class Written:
    """A transport that notes what is written to it."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.data.append(data)


def as_transport(written: Written) -> asyncio.Transport:
    return cast(asyncio.Transport, written)


async def test_what_is_said_in_one_turn_leaves_at_its_end_in_order() -> None:
    outbox, one, other = WriteBuffer(), Written(), Written()
    for word in (b"a", b"b"):
        outbox.send(as_transport(one), word)
        outbox.send(as_transport(other), word * 2)
    assert (one.data, other.data) == ([], [])
    await asyncio.sleep(0)
    assert (one.data, other.data) == ([b"a", b"b"], [b"aa", b"bb"])
    outbox.send(as_transport(one), b"c")
    await asyncio.sleep(0)
    assert one.data == [b"a", b"b", b"c"]


async def test_much_leaves_at_once() -> None:
    outbox, one = WriteBuffer(), Written()
    outbox.send(as_transport(one), b"head")
    outbox.send(as_transport(one), b"x" * (1 << 20))
    assert [len(data) for data in one.data] == [4, 1 << 20]
    await asyncio.sleep(0)
    assert len(one.data) == 2


async def test_emptied_by_hand_it_sends_nothing_twice() -> None:
    outbox, one = WriteBuffer(), Written()
    outbox.send(as_transport(one), b"last")
    outbox.empty()
    await asyncio.sleep(0)
    assert one.data == [b"last"]
