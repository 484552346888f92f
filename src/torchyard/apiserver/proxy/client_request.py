"""What a proxy passes on of its client's request."""

from __future__ import annotations

import asyncio
import importlib
import sys

from multidict import CIMultiDict

from torchyard.apiserver.request.request import ReceivedRequest, Request

_BEARER_PREFIX = "base64url.bearer.authorization.k8s.io."


async def load_client() -> None:
    """Import aiohttp, which takes a good part of a second, in a thread: the first request through a proxy pays."""
    name = "torchyard.apiserver.proxy.upgrade_proxy"
    if name not in sys.modules:
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)


def received_request(request: Request) -> ReceivedRequest:
    """The request before its path was decoded. The router adds it to those of in-process clients."""
    assert request.received is not None
    return request.received


def client_headers(request: Request) -> CIMultiDict[str]:
    """The headers of the client without its credentials."""
    headers = CIMultiDict(request.headers.items())
    for name in {
        name for name in headers if name.lower() == "authorization" or name.lower().startswith("impersonate-")
    }:
        headers.popall(name, None)
    protocols = [
        protocol.strip() for value in headers.getall("Sec-WebSocket-Protocol", ()) for protocol in value.split(",")
    ]
    forwarded = [protocol for protocol in protocols if not protocol.startswith(_BEARER_PREFIX)]
    if forwarded != protocols:
        headers.popall("Sec-WebSocket-Protocol", None)
        if forwarded:
            headers["Sec-WebSocket-Protocol"] = ", ".join(forwarded)
    return headers


def is_upgrade(request: Request) -> bool:
    return "upgrade" in request.headers.get("Connection", "").lower() and "Upgrade" in request.headers
