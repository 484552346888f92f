"""Every WebSocket protocol of exec and logs. The messages are those that a kubelet 1.34 sent for the same requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.node.conftest import RunningNode

TEXT, BINARY = aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY
EXEC = "exec?stdout=1&stderr=1&command=sh&command=-c&command="
PODS = "/api/v1/namespaces/default/pods/ws/"
SUCCESS = b'\x03{"metadata": {}, "status": "Success"}'
FAILURE = "command terminated with non-zero exit code: exit status 3"


class WebSockets:
    def __init__(self, node: RunningNode, token: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = node.plane.url, session
        self._headers = {"Authorization": f"Bearer {token}"}

    async def messages(self, path: str, *protocols: str, send: bytes | str = b"") -> list[tuple[Any, Any]]:
        async with self._session.ws_connect(
            f"{self._url}{PODS}{path}", protocols=protocols, ssl=False, headers=self._headers
        ) as socket:
            if isinstance(send, str):
                await socket.send_str(send)
            elif send:
                await socket.send_bytes(send)
            assert socket.protocol == (protocols[0] if protocols else None)
            return [(message.type, message.data) async for message in socket]


async def test_exec_and_logs_over_every_websocket_protocol(node: RunningNode, tmp_path: Path) -> None:
    await node.script("ws", "echo alive; exec sleep 600")
    await node.until("ws", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))
    token = (tmp_path / "state" / "admin.token").read_text().strip()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        sockets = WebSockets(node, token, session)
        for protocol in ((), ("channel.k8s.io",)):
            assert await sockets.messages(f"{EXEC}echo+hi", *protocol) == [(BINARY, b"\x01hi\n")]
            assert await sockets.messages(f"{EXEC}exit+3", *protocol) == [(BINARY, b"\x03" + FAILURE.encode())]
        assert await sockets.messages(f"{EXEC}echo+hi", "base64.channel.k8s.io") == [(TEXT, "1aGkK")]
        for name in ("v4.channel.k8s.io", "v5.channel.k8s.io"):
            assert await sockets.messages(f"{EXEC}echo+hi", name) == [(BINARY, b"\x01hi\n"), (BINARY, SUCCESS)]
        got, status = await sockets.messages(
            f"{EXEC}read+line+%26%26+echo+got+$line&stdin=1", "v4.base64.channel.k8s.io", send="0aGVsbG8K"
        )
        assert got == (TEXT, "1Z290IGhlbGxvCg==") and status[1].startswith("3eyJ")
        for protocol in ((), ("binary.k8s.io",)):
            assert await sockets.messages("log", *protocol) == [(BINARY, b""), (BINARY, b"alive\n")]
        assert await sockets.messages("log", "base64.binary.k8s.io") == [(TEXT, ""), (TEXT, "YWxpdmUK")]
        for path in (f"{EXEC}echo+hi", "log"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await sockets.messages(path, "other")
            assert refused.value.status == 403
