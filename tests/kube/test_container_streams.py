"""What a command's streams report when its connection, or the reading of its input, fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from torchyard.api.errors import YardError
from torchyard.kube.container_streams import ContainerAddress, forward_connection, run_process
from torchyard.kube.http import HttpTransport

ADDRESS = ContainerAddress("default", "p")


class Socket:
    protocol = "v5.channel.k8s.io"

    def __init__(self, *messages: bytes, ends: bool = True, refuses: bool = False) -> None:
        self._messages, self._ends, self._refuses = messages, ends, refuses

    async def send(self, message: bytes) -> None:
        if self._refuses:
            raise ConnectionResetError

    async def messages(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.01)
        for message in self._messages:
            yield message
        if not self._ends:
            await asyncio.Event().wait()


async def run(socket: Socket, command: list[str], stdin: AsyncIterator[bytes] | None = None) -> int:
    class Transport:
        @asynccontextmanager
        async def websocket(self, *_: Any) -> AsyncIterator[Socket]:
            yield socket

    transport = cast(HttpTransport, Transport())
    return await run_process(transport, ADDRESS, command, lambda _channel, _data: None, stdin=stdin)


async def unreadable() -> AsyncIterator[bytes]:
    yield b"x"
    raise YardError("cannot read it")


async def readable() -> AsyncIterator[bytes]:
    yield b"x"


async def test_a_connection_that_ends_early_is_no_success() -> None:
    with pytest.raises(YardError, match="the connection ended before the command did"):
        await run(Socket(b"\1output"), ["true"])
    assert await run(Socket(b"\1output"), []) == 0
    assert await run(Socket(b'\3{"status": "Success"}', ends=False), ["true"]) == 0


async def test_input_that_cannot_be_read_ends_the_command() -> None:
    with pytest.raises(YardError, match="cannot read it"):
        await asyncio.wait_for(run(Socket(ends=False), ["tar"], unreadable()), 30)


async def test_a_command_that_ends_before_its_input_reports_its_exit_code() -> None:
    assert await run(Socket(b'\3{"status": "Success"}', refuses=True), ["head"], readable()) == 0


async def test_a_connection_that_cannot_be_forwarded_is_closed() -> None:
    class Transport:
        def websocket(self, *_: Any) -> Socket:
            raise YardError("refused")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with pytest.raises(YardError, match="refused"):
            await forward_connection(cast(HttpTransport, Transport()), ADDRESS, 80, reader, writer)

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    server.close()
