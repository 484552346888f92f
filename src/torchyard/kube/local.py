"""The in-process transport: requests go straight to the server's handler, with no socket between.

The handler is given by the assembly, so that this layer need not know the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from torchyard.kube.client import JSON, Answer, error_of

# (method, path with query, body, content type, accept) -> (status, whole body or pieces, headers)
Handler = Callable[
    [str, str, bytes, str, str], Awaitable[tuple[int, bytes | AsyncGenerator[bytes, None], dict[str, str]]]
]


class LocalTransport:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> Answer:
        status, answer, headers = await self._handler(method, path, body, content_type, accept)
        if not isinstance(answer, bytes):
            answer = b"".join([piece async for piece in answer])
        return Answer(status, answer, headers)

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        status, answer, headers = await self._handler("GET", path, b"", "", accept)
        if isinstance(answer, bytes):
            if status >= 400:
                raise error_of(Answer(status, answer, headers))
            yield answer
            return
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        return None
