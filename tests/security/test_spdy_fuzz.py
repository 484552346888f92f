"""SPDY connections of hostile clients: they end, without a traceback and without taking memory."""

from __future__ import annotations

import asyncio
import random
import struct
import tracemalloc
import zlib

import pytest
from tests.apiserver.streams.test_protocols import Echo, FakeDuplex, SpdyClient
from tests.support.effort import rounds

from torchyard.apiserver.streams import spdy_dictionary, spdy_handlers
from torchyard.apiserver.streams.interfaces import Connection
from torchyard.apiserver.streams.spdy import SpdyConnection, SpdyError, SpdyStream

WITHIN = 30.0
MEGABYTE = 1 << 20


async def refuse(_: int) -> Connection:
    raise ConnectionRefusedError("nothing listens here")


async def run(*messages: bytes, max_streams: int = 8) -> tuple[SpdyConnection, list[SpdyStream]]:
    """Run a connection whose client sends these messages and disconnects."""
    streams: list[SpdyStream] = []

    async def on_stream(stream: SpdyStream) -> None:
        streams.append(stream)

    duplex = FakeDuplex()
    duplex.receives(*messages, None)
    connection = SpdyConnection(duplex, on_stream, max_streams=max_streams)
    async with asyncio.timeout(WITHIN):
        await connection.run()
    return connection, streams


def control(kind: int, payload: bytes, *, version: int = 0x8003, size: int | None = None) -> bytes:
    return struct.pack(">HHI", version, kind, len(payload) if size is None else size) + payload


def syn_stream(number: int, raw: bytes) -> bytes:
    deflate = zlib.compressobj(zdict=spdy_dictionary.DICTIONARY)
    block = deflate.compress(raw) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return control(1, struct.pack(">IIBB", number, 0, 0, 0) + block)


BROKEN = {
    "another version": control(1, b"\0" * 20, version=0x8002),
    "a short SYN_STREAM": control(1, b"\0\0"),
    "an empty SYN_STREAM": control(1, b""),
    "a short RST_STREAM": control(3, b"\0"),
    "headers that are not compressed": control(1, struct.pack(">IIBB", 1, 0, 0, 0) + b"nonsense"),
    "a count of headers without headers": syn_stream(1, struct.pack(">I", 0xFFFFFFFF)),
    "a length beyond the headers": syn_stream(1, struct.pack(">II", 1, 0xFFFFFFF0) + b"abc"),
    "no count": syn_stream(1, b""),
    "an even stream id": syn_stream(2, struct.pack(">I", 0)),
    "stream id 0": syn_stream(0, struct.pack(">I", 0)),
    "a control frame of 16 MB": control(1, b"", size=0xFFFFFF),
    "a header bomb": syn_stream(1, struct.pack(">II", 1, 50 * MEGABYTE) + b"\0" * (50 * MEGABYTE)),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_frame_ends_the_connection(name: str) -> None:
    with pytest.raises(SpdyError):
        await run(BROKEN[name])


async def test_a_header_bomb_is_not_inflated() -> None:
    bomb = BROKEN["a header bomb"]
    tracemalloc.start()
    try:
        with pytest.raises(SpdyError):
            await run(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * MEGABYTE


async def test_a_stream_id_is_used_once() -> None:
    client = SpdyClient()
    with pytest.raises(SpdyError, match="invalid stream id 3"):
        await run(client.open(3, {"a": "b"}), client.open(3, {"a": "b"}))


async def test_streams_are_limited() -> None:
    client = SpdyClient()
    frames = [client.open(2 * number + 1, {"streamtype": "error"}) for number in range(9)]
    with pytest.raises(SpdyError, match="more than 8 streams"):
        await run(*frames)


async def test_streams_that_both_sides_closed_do_not_count() -> None:
    client = SpdyClient()
    duplex = FakeDuplex()
    opened = 0

    async def on_stream(stream: SpdyStream) -> None:
        nonlocal opened
        opened += 1
        await stream.close()

    for number in range(100):
        duplex.receives(client.open(2 * number + 1, {"streamtype": "error"}, fin=True))
    duplex.receives(None)
    async with asyncio.timeout(WITHIN):
        await SpdyConnection(duplex, on_stream, max_streams=8).run()
    assert opened == 100


async def test_a_large_data_frame_is_passed_on_as_it_arrives() -> None:
    """A frame of 8 MB whose stream is not read stops the connection after a few hundred kilobytes."""
    client, duplex = SpdyClient(), FakeDuplex()
    streams: list[SpdyStream] = []

    async def on_stream(stream: SpdyStream) -> None:
        streams.append(stream)

    piece = b"x" * 65536
    duplex.receives(client.open(1, {"streamtype": "data"}), struct.pack(">II", 1, 8 * MEGABYTE))
    duplex.receives(*[piece] * 128, None)
    running = asyncio.create_task(SpdyConnection(duplex, on_stream, max_streams=8).run())
    async with asyncio.timeout(WITHIN):
        while not streams or duplex.incoming.qsize() == 130:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert duplex.incoming.qsize() > 100  # most of it is still at the client
        received = 0
        while (chunk := await streams[0].read()) is not None:
            received += len(chunk)
        await running
    assert received == 8 * MEGABYTE


async def test_ports_that_are_not_numbers_get_an_error() -> None:
    for port in ("", "x", "-1", "0", "65536", "9" * 5000):
        client, duplex = SpdyClient(), FakeDuplex()
        duplex.receives(client.open(1, {"streamtype": "error", "requestid": "0"}))
        duplex.receives(client.open(3, {"streamtype": "data", "port": port, "requestid": "0"}))
        serving = asyncio.create_task(spdy_handlers.serve_ports(duplex, refuse))
        await duplex.wait_until_sent(lambda duplex=duplex: b"as a port" in b"".join(duplex.sent))  # type: ignore[misc]
        duplex.receives(None)
        await serving


def mutated(choice: random.Random) -> bytes:
    """A valid conversation with a few changes."""
    client = SpdyClient()
    frames = []
    for number in range(choice.randrange(1, 6)):
        kind = choice.choice(["error", "data", "stdin", "stdout", "resize", ""])
        frames.append(client.open(2 * number + 1, {"streamtype": kind, "port": "80", "requestid": str(number // 2)}))
        frames.append(client.data(2 * number + 1, choice.randbytes(choice.randrange(200)), fin=choice.random() < 0.3))
        frames.append(client.ping(number))
    if choice.random() < 0.5:
        choice.shuffle(frames)
    data = bytearray(b"".join(frames))
    for _ in range(choice.randrange(1, 8)):
        at = choice.randrange(len(data))
        change = choice.randrange(4)
        if change == 0:
            data[at] ^= 1 << choice.randrange(8)
        elif change == 1:
            del data[at : at + choice.randrange(1, 30)]
        elif change == 2:
            data[at:at] = choice.randbytes(choice.randrange(1, 30))
        else:
            data[at : at + 4] = struct.pack(">I", choice.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80030001]))
        if not data:
            data += b"\0"
    return bytes(data)


@pytest.mark.parametrize("kind", ["ports", "process"])
async def test_mutated_conversations_end_without_an_unexpected_error(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    unexpected: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(str(context)))

    async def start() -> Echo:
        return Echo()

    for seed in range(rounds(1000, 50_000)):
        choice = random.Random(f"{kind} {seed}")
        data, duplex = mutated(choice), FakeDuplex()
        cut = choice.randrange(1, 64)
        duplex.receives(*(data[at : at + cut] for at in range(0, len(data), cut)), None)
        if kind == "ports":
            serving = asyncio.create_task(spdy_handlers.serve_ports(duplex, refuse))
        else:
            streams = frozenset({"error", "stdin", "stdout"})
            serving = asyncio.create_task(
                spdy_handlers.serve_process(duplex, start, streams=streams, outputs=("stdout",))
            )
        async with asyncio.timeout(WITHIN):
            for _ in range(200):
                await asyncio.sleep(0)
            for callback in duplex.close_callbacks:  # the client is gone, whether or not its data was read
                callback()
            await serving
    assert unexpected == []
    assert "Traceback" not in caplog.text
