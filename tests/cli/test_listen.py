"""The ports of `yard port-forward`."""

from __future__ import annotations

import asyncio

import pytest

from torchyard.api.errors import YardError
from torchyard.cli.processes import _listen


async def ignore(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_port_that_is_taken_is_reported() -> None:
    server = await _listen(ignore, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(YardError, match=f"cannot listen on 127.0.0.1:{port}") as error:
        await _listen(ignore, "127.0.0.1", port)
    assert error.value.code == "PortTaken"
    server.close()
