"""Connections that aiohttp takes over."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchyard.apiserver.http.server import HttpServer


async def test_a_connection_that_cannot_be_taken_over_is_closed() -> None:
    class Handler:
        def take(self, _connection: object) -> None:
            raise OSError("the socket is gone")

    server = HttpServer(cast(Any, None))
    server._upgrades = asyncio.get_running_loop().create_future()
    server._upgrades.set_result(cast(Any, Handler()))
    aborted: list[bool] = []
    transport = SimpleNamespace(is_closing=lambda: False, abort=lambda: aborted.append(True))
    with pytest.raises(OSError, match="the socket is gone"):
        await server.upgrade(cast(Any, SimpleNamespace(transport=transport)))
    assert aborted == [True]
