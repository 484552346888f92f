"""The in-process transport: requests go straight to the server's handler, with no socket between.

The handler is given by the assembly, so that this layer need not know the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple, Protocol

from torchyard.api.objects import Object
from torchyard.kube.client import JSON, ApiResponse, decode_watch_events, status_error


class HandlerResponse(NamedTuple):
    """What the server answers: a whole body, or its pieces, or the events of a watch."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    headers: dict[str, str]
    events: AsyncGenerator[list[Object], None] | None = None


class RequestHandler(Protocol):
    async def __call__(
        self, method: str, path: str, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> HandlerResponse:
        """`path` with its query."""
        ...


class LocalTransport:
    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        status, answer, headers, _ = await self._handler(method, path, body, content_type, accept)
        if not isinstance(answer, bytes):
            answer = b"".join([piece async for piece in answer])
        return ApiResponse(status, answer, headers)

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        status, answer, headers, _ = await self._handler("GET", path, accept=accept)
        if isinstance(answer, bytes):
            if status >= 400:
                raise status_error(ApiResponse(status, answer, headers))
            yield answer
            return
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                yield piece

    async def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        """What is given belongs to whoever watches: nothing else in this process has it."""
        status, answer, headers, events = await self._handler("GET", path, accept=accept)
        if events is None:
            if isinstance(answer, bytes):
                raise status_error(ApiResponse(status, answer, headers))
            events = decode_watch_events(answer)
        async with aclosing(events) as told:
            async for some in told:
                yield some

    async def close(self) -> None:
        return None
