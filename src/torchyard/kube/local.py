"""The in-process transport: requests go straight to the server's handler, without a socket.

The assembly passes the handler in, so that this layer does not depend on the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple, Protocol

from torchyard.api.objects import Object
from torchyard.kube.client import JSON, ApiResponse, decode_watch_events, status_error


class HandlerResponse(NamedTuple):
    """A response of the server: a complete body, its chunks, or the events of a watch."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    headers: dict[str, str]
    events: AsyncGenerator[list[Object], None] | None = None


class RequestHandler(Protocol):
    async def __call__(
        self, method: str, path: str, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> HandlerResponse:
        """Handle a request. `path` includes the query."""
        ...


class LocalTransport:
    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        status, response_body, headers, _ = await self._handler(method, path, body, content_type, accept)
        if not isinstance(response_body, bytes):
            response_body = b"".join([chunk async for chunk in response_body])
        return ApiResponse(status, response_body, headers)

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        status, response_body, headers, _ = await self._handler("GET", path, accept=accept)
        if isinstance(response_body, bytes):
            if status >= 400:
                raise status_error(ApiResponse(status, response_body, headers))
            yield response_body
            return
        async with aclosing(response_body) as chunks:
            async for chunk in chunks:
                yield chunk

    async def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        """Yield batches of events. The caller owns the objects: nothing else in the process refers to them."""
        status, response_body, headers, events = await self._handler("GET", path, accept=accept)
        if events is None:
            if isinstance(response_body, bytes):
                raise status_error(ApiResponse(status, response_body, headers))
            events = decode_watch_events(response_body)
        async with aclosing(events) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        return None
