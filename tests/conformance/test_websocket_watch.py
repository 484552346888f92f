"""Watches over WebSockets, which pages in browsers use: the same handshakes and messages as the real server's."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import first_answer

ORIGIN = {"Origin": "https://headlamp.example"}
WATCH = "/api/v1/namespaces?watch=1&timeoutSeconds=1"


@contextlib.asynccontextmanager
async def session(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(server.ca))
    if server.certificate is not None:
        context.load_cert_chain(*server.certificate)
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    sockets: list[socket.socket] = []

    def open_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        sockets[-1].setblocking(False)
        return sockets[-1]

    async def are_closed() -> bool:
        return all(each.fileno() < 0 for each in sockets)

    connector = aiohttp.TCPConnector(ssl=context, socket_factory=open_socket)
    async with aiohttp.ClientSession(server.url, connector=connector, headers=headers) as client:
        yield client
    await first_answer(are_closed, "the end of the connections", pause=0)  # aborted ones need turns of the event loop


@pytest.mark.parametrize("protocols", [(), ("base64.binary.k8s.io",), ("v4.channel.k8s.io",), ("anything",)])
@pytest.mark.parametrize("path", [WATCH, "/api/v1/watch/namespaces?timeoutSeconds=1"])
async def test_events_are_text_messages_until_the_watch_ends(
    server: Server, path: str, protocols: tuple[str, ...]
) -> None:
    async with session(server) as client, client.ws_connect(path, headers=ORIGIN, protocols=protocols) as socket:
        assert socket.protocol == (protocols[0] if protocols else None)
        messages = [message async for message in socket]
        assert {message.type for message in messages} == {aiohttp.WSMsgType.TEXT}
        assert all(message.data.endswith("}\n") for message in messages)
        events = [json.loads(message.data) for message in messages]
        assert "default" in {event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"}
        assert socket.close_code in (1000, 1006)  # the real server may close before it has read the client's close


@pytest.mark.parametrize(
    ("path", "headers", "protocols", "status"),
    [
        (WATCH, {}, (), 403),
        (WATCH, ORIGIN, ("base64.binary.k8s.io", "v4.channel.k8s.io"), 400),
        ("/apis/missing.example.org/v1/things?watch=1", ORIGIN, (), 404),
        ("/api/v1/namespaces", ORIGIN, (), 200),
        ("/api/v1/namespaces/default/pods/missing/log", ORIGIN, (), 404),
    ],
)
async def test_other_handshakes_get_a_plain_response(
    server: Server, path: str, headers: dict[str, str], protocols: tuple[str, ...], status: int
) -> None:
    async with session(server) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(path, headers=headers, protocols=protocols)
        assert refused.value.status == status


async def test_a_client_that_closes_ends_the_watch(server: Server) -> None:
    async with session(server) as client:
        async with client.ws_connect("/api/v1/namespaces?watch=1", headers=ORIGIN) as socket:
            assert (await socket.receive()).type is aiohttp.WSMsgType.TEXT
            await socket.send_str("ignored")
        assert socket.closed
        async with client.get("/api/v1/namespaces/default") as response:
            assert response.status == 200
