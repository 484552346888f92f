"""Channel WebSockets and SPDY, frame by frame, with a scripted client."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from torchyard.api import errors
from torchyard.apiserver.streams import spdy_dictionary, spdy_handlers, websocket_channels
from torchyard.apiserver.streams.interfaces import Connection
from torchyard.apiserver.streams.pod_handler import choose_container


class FakeDuplex:
    """Queues the client's messages for the server, and records what the server sends."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: list[bytes] = []
        self._was_sent = asyncio.Event()
        self.close_callbacks: list[Callable[[], None]] = []

    def receives(self, *messages: bytes | None) -> None:
        for message in messages:
            self.incoming.put_nowait(message)

    async def send(self, data: bytes) -> None:
        self.sent.append(data)
        self._was_sent.set()

    async def wait_until_sent(self, is_complete: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_complete():
                self._was_sent.clear()
                await self._was_sent.wait()

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def on_close(self, callback: Callable[[], None]) -> None:
        self.close_callbacks.append(callback)


class Echo:
    """A process that prints its input and ends with a code when the input ends."""

    def __init__(self, code: int = 0) -> None:
        self._code, self._queue = code, asyncio.Queue[bytes | None]()
        self.sizes: list[tuple[int, int]] = []
        self.closed = False
        self._ended = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self._queue.put_nowait(data)

    async def close_input(self) -> None:
        self._queue.put_nowait(None)

    def resize(self, *, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def output(self, stream: str) -> AsyncIterator[bytes]:
        if stream == "stderr":
            yield b"warned"
            return
        while (data := await self._queue.get()) is not None:
            yield data
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._code

    async def close(self) -> None:
        self.closed = True


async def test_channel_v5_serves_a_process_with_half_close() -> None:
    duplex, process = FakeDuplex(), Echo(code=3)
    duplex.receives(b"\x00some ", b"\x04" + b'{"Width":80,"Height":24}', b"\x00input", b"\xff\x00")
    await websocket_channels.serve_process(
        duplex, process, outputs=("stdout", "stderr"), protocol=websocket_channels.V5
    )
    assert b"".join(message[1:] for message in duplex.sent if message[0] == 1) == b"some input"
    assert [message for message in duplex.sent if message[0] == 2] == [b"\x02warned"]
    status = json.loads(duplex.sent[-1][1:])
    assert duplex.sent[-1][0] == 3
    assert (status["reason"], status["details"]["causes"]) == (
        "NonZeroExitCode",
        [{"reason": "ExitCode", "message": "3"}],
    )
    assert process.sizes == [(80, 24)]
    assert process.closed


async def test_exit_code_zero_is_a_success_status() -> None:
    duplex, process = FakeDuplex(), Echo()
    duplex.receives(b"\xff\x00")
    await websocket_channels.serve_process(duplex, process, outputs=("stdout",), protocol=websocket_channels.V5)
    assert json.loads(duplex.sent[-1][1:]) == {"metadata": {}, "status": "Success"}


async def test_channel_v4_has_no_half_close_and_a_disconnect_ends_the_process() -> None:
    duplex, process = FakeDuplex(), Echo()
    duplex.receives(b"\x00x", b"\xff\x00", None)
    await websocket_channels.serve_process(duplex, process, outputs=("stdout",), protocol=websocket_channels.V4)
    assert process.closed
    assert not any(message[0] == 3 for message in duplex.sent)


def test_the_header_dictionary_has_the_standard_checksum() -> None:
    assert len(spdy_dictionary.DICTIONARY) == 1423
    assert spdy_dictionary.CHECKSUM == 0xE3C6A7C2


class SpdyClient:
    """The client's side of a SPDY connection, as bytes."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=spdy_dictionary.DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=spdy_dictionary.DICTIONARY)

    def open(self, number: int, headers: dict[str, str], *, fin: bool = False) -> bytes:
        raw = struct.pack(">I", len(headers))
        for name, value in headers.items():
            raw += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
        block = self._deflate.compress(raw) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        payload = struct.pack(">IIBB", number, 0, 0, 0) + block
        return struct.pack(">HHI", 0x8003, 1, (fin << 24) | len(payload)) + payload

    @staticmethod
    def data(number: int, data: bytes, *, fin: bool = False) -> bytes:
        return struct.pack(">II", number, (fin << 24) | len(data)) + data

    @staticmethod
    def ping(number: int) -> bytes:
        return struct.pack(">HHI", 0x8003, 6, 4) + struct.pack(">I", number)

    @staticmethod
    def frames(raw: bytes) -> list[tuple[str, int, bytes, bool]]:
        """(kind, stream, data, last)."""
        parsed = []
        while raw:
            first, second = struct.unpack_from(">II", raw)
            size = second & 0xFFFFFF
            payload, raw = raw[8 : 8 + size], raw[8 + size :]
            if first >> 31:
                kind = {2: "reply", 6: "ping", 7: "goaway"}[first & 0xFFFF]
                parsed.append((kind, struct.unpack_from(">I", payload)[0], b"", False))
            else:
                parsed.append(("data", first, payload, bool(second >> 24 & 1)))
        return parsed


async def _echo_server() -> tuple[asyncio.Server, int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return server, port


async def test_port_forward_over_spdy_copies_both_ways_and_replies_to_pings() -> None:
    server, port = await _echo_server()

    async def connect(requested: int) -> Connection:
        assert requested == 80
        return await asyncio.open_connection("127.0.0.1", port)

    duplex, client = FakeDuplex(), SpdyClient()
    opening = client.open(1, {"streamType": "error", "port": "80", "requestID": "0"}, fin=True)
    opening += client.open(3, {"streamType": "data", "port": "80", "requestID": "0"})
    # in chunks that do not match the frames
    stream_bytes = opening + client.data(3, b"hello ") + client.ping(7) + client.data(3, b"there", fin=True)
    duplex.receives(*(stream_bytes[start : start + 13] for start in range(0, len(stream_bytes), 13)))
    serving = asyncio.create_task(spdy_handlers.serve_ports(duplex, connect))
    await duplex.wait_until_sent(lambda: ("data", 1, b"", True) in client.frames(b"".join(duplex.sent)))
    frames = client.frames(b"".join(duplex.sent))
    duplex.receives(None)
    await serving
    server.close()
    assert b"".join(data for kind, number, data, _ in frames if kind == "data" and number == 3) == b"HELLO THERE"
    assert ("ping", 7, b"", False) in frames
    assert ("data", 1, b"", True) in frames, "the error stream is closed without an error"


async def test_a_connect_failure_is_sent_on_the_error_stream() -> None:
    async def connect(_: int) -> Connection:
        raise errors.internal("connection refused")

    duplex, client = FakeDuplex(), SpdyClient()
    duplex.receives(client.open(1, {"streamtype": "error", "port": "80", "requestid": "0"}))
    duplex.receives(client.open(3, {"streamtype": "data", "port": "80", "requestid": "0"}))
    serving = asyncio.create_task(spdy_handlers.serve_ports(duplex, connect))
    # the server closes both streams after the error
    await duplex.wait_until_sent(lambda: {(1, True), (3, True)} <= _closed_streams(client, duplex))
    duplex.receives(None)
    await serving
    data_sent = b"".join(data for kind, number, data, _ in client.frames(b"".join(duplex.sent)) if kind == "data")
    assert b"connection refused" in data_sent


def _closed_streams(client: SpdyClient, duplex: FakeDuplex) -> set[tuple[int, bool]]:
    frames = client.frames(b"".join(duplex.sent))
    return {(number, fin) for kind, number, _, fin in frames if kind == "data" and fin}


async def test_exec_over_spdy_waits_for_all_streams() -> None:
    process = Echo(code=5)

    async def start() -> Echo:
        return process

    duplex, client = FakeDuplex(), SpdyClient()
    for number, kind in ((1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")):
        duplex.receives(client.open(number, {"streamtype": kind}))
    duplex.receives(client.data(3, b"typed"), client.data(3, b"", fin=True))
    streams = frozenset({"error", "stdin", "stdout", "stderr"})
    await spdy_handlers.serve_process(duplex, start, streams=streams, outputs=("stdout", "stderr"))
    frames = client.frames(b"".join(duplex.sent))
    by_stream = {
        n: b"".join(data for kind, number, data, _ in frames if kind == "data" and number == n) for n in (1, 5, 7)
    }
    assert by_stream[5] == b"typed"
    assert by_stream[7] == b"warned"
    assert json.loads(by_stream[1])["details"]["causes"][0]["message"] == "5"


async def test_port_forward_over_channels_starts_each_channel_with_its_port() -> None:
    server, port = await _echo_server()

    async def connect(_: int) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"abc")
        writer.write_eof()
        return reader, writer

    duplex = FakeDuplex()
    serving = asyncio.create_task(websocket_channels.serve_ports(duplex, [8080], connect))
    await duplex.wait_until_sent(lambda: _channel(duplex, 0) == b"ABC")
    duplex.receives(None)
    await serving
    server.close()
    assert duplex.sent[:2] == [b"\x00" + struct.pack("<H", 8080), b"\x01" + struct.pack("<H", 8080)]
    assert _channel(duplex, 0) == b"ABC"


def _channel(duplex: FakeDuplex, channel: int) -> bytes:
    """The data on a channel after the two messages that open the port."""
    return b"".join(message[1:] for message in duplex.sent[2:] if message[0] == channel)


def pod(*containers: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": name} for name in containers], **more}}


@pytest.mark.parametrize(
    ("pod_object", "requested", "expected"),
    [
        (pod("a"), "", "a"),
        (pod("a", "b"), "b", "b"),
        (pod("a", "b"), "", "a container name must be specified for pod p, choose one of: [a b]"),
        (pod("a"), "x", "container x is not valid for pod p"),
        (pod("a", initContainers=[{"name": "i"}]), "i", "i"),
    ],
)
def test_choose_container_requires_a_name_unless_there_is_only_one(
    pod_object: dict[str, Any], requested: str, expected: str
) -> None:
    try:
        assert choose_container(pod_object, requested, init=True) == expected
    except errors.StatusError as error:
        assert (error.status, error.message) == (400, expected)
