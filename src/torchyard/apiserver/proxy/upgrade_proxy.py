"""Passes a request that upgrades its connection, such as a WebSocket, to a pod, and joins the two connections."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest, insecure_context, unreachable
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.service_network.dialer import DIAL_SECONDS, Dialer

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from torchyard.apiserver.streams.upgrade import RawDuplex

_MAX_HEAD = 64 * 1024
_CHUNK = 64 * 1024
_SWITCHING = re.compile(rb"HTTP/1\.[01] 101 ")


async def forward_upgrade(request: ProxyRequest, dial: Dialer, incoming: BaseRequest) -> Response:
    """Copy both ways until one side ends. What the pod answers instead of 101 goes to the client as it is."""
    from torchyard.apiserver.streams import upgrade  # needs aiohttp, which is loaded by the first upgrade

    headers = request.sent_headers(keep_upgrade=True)
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            reader, writer = await _connect(request, dial)
    except (OSError, TimeoutError) as error:
        raise unreachable(error, request.target) from None
    try:
        lines = [f"{request.method} {request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape"))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            raise unreachable(ConnectionResetError(str(error)), request.target) from None
        client = upgrade.hijack(incoming, head)
        try:
            if _SWITCHING.match(head):
                await _join(client, reader, writer)
            else:
                await _copy_to_client(client, reader)
        finally:
            client.close()
    finally:
        writer.close()
    return Response(status=101, upgraded=upgrade.HijackedResponse())


async def _connect(request: ProxyRequest, dial: Dialer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    target = request.target
    is_tls = target.scheme == "https"
    connection = await dial(target.host, int(target.port or (443 if is_tls else 80)))
    try:
        return await asyncio.open_connection(
            sock=connection,
            limit=_MAX_HEAD,
            ssl=(request.tls or insecure_context()) if is_tls else None,
            server_hostname=(request.server_name or target.host) if is_tls else None,
        )
    except BaseException:
        connection.close()
        raise


async def _join(client: RawDuplex, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    tasks = [
        asyncio.create_task(_copy_to_client(client, reader)),
        asyncio.create_task(_copy_to_pod(client, writer)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy_to_client(client: RawDuplex, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            await client.send(data)


async def _copy_to_pod(client: RawDuplex, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while (data := await client.receive()) is not None:
            writer.write(data)
            await writer.drain()
