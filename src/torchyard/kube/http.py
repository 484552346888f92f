"""The HTTP transport: a real API server, reached as a kubeconfig or a pod's service account says."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from torchyard.api.objects import Object
from torchyard.kube.client import JSON, ApiResponse, Unreachable, decode_watch_events, status_error
from torchyard.kube.concurrency import ConcurrencyLimiter
from torchyard.kube.credentials import Credential, CredentialError, Credentials, ssl_context
from torchyard.kube.http_connection import ConnectionPool
from torchyard.kube.kubeconfig import Connection

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
# A request the server had no time for is tried again this often, as long as it says when.
RETRIES = 5


Observe = Callable[[str, int, float], None]  # method, status, seconds


class HttpTransport:
    """Keeps connections open; renews credentials when the server no longer takes them.

    `limiter` bounds what is under way at once, `observe` is told of every answer; streams are in neither.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        limit: int = 100,
        limiter: ConcurrencyLimiter | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._limiter, self._observe = limiter or ConcurrencyLimiter(maximum=limit), observe
        self._connection = connection
        self._credentials = Credentials(connection)
        self._agent = user_agent
        self._limit = limit
        parts = urlsplit(connection.server)
        self._host, self._prefix = parts.hostname or "", parts.path.rstrip("/")
        self._port, self._is_plain = parts.port or (80 if parts.scheme == "http" else 443), parts.scheme == "http"
        self._own = (f"Host: {parts.netloc.rpartition('@')[2]}", f"User-Agent: {user_agent}")
        self._wires: ConnectionPool | None = None
        self._wires_of: tuple[bytes | None, bytes | None] = (None, None)
        self._session: aiohttp.ClientSession | None = None
        self._session_of: tuple[bytes | None, bytes | None] = (None, None)
        self._retired: list[aiohttp.ClientSession] = []

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        headers = {"Accept": accept}
        if body:
            headers["Content-Type"] = content_type
        exchanged = self._by_proxy if self._connection.proxy else self._directly
        renewed = False
        for attempt in range(RETRIES + 1):
            async with self._limiter:
                begun = time.perf_counter()
                answer = await exchanged(method, path, headers, body)
            if self._observe is not None:
                self._observe(method, answer.status, time.perf_counter() - begun)
            if answer.status == 401 and not renewed:
                renewed = True
                await self._credentials.current(renew=True)
                continue
            wait = _pause(answer)
            if wait is None or attempt == RETRIES:
                return answer
            self._limiter.back_off(wait)  # its next turn comes after the pause, as everybody's
        return answer

    async def _directly(self, method: str, path: str, headers: dict[str, str], body: bytes) -> ApiResponse:
        credential = await self._credentials.current()
        fields = {**headers, **credential.headers, "Content-Length": str(len(body))}
        head = [f"{method} {self._prefix}{path} HTTP/1.1", *self._own, *(f"{name}: {fields[name]}" for name in fields)]
        if any("\n" in line or "\r" in line for line in head):
            raise CredentialError(f"the credentials of {self._connection.origin} have a line break in them")
        request = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
        try:
            async with asyncio.timeout(READ_SECONDS):
                reply = await self._wires_for(credential).ask(request, repeatable=method in ("GET", "PUT", "DELETE"))
        except OSError as error:
            raise self._unreachable(error) from error
        return ApiResponse(reply.status, reply.body, reply.headers)

    async def _by_proxy(self, method: str, path: str, headers: dict[str, str], body: bytes) -> ApiResponse:
        timeout = aiohttp.ClientTimeout(total=READ_SECONDS, connect=CONNECT_SECONDS)
        async with self._sent(method, path, headers, body, timeout) as response:
            return await _answer(response)

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        async with self._sent("GET", path, {"Accept": accept}, b"", timeout) as response:
            if response.status >= 400:
                raise status_error(await _answer(response))
            try:
                async for piece in response.content.iter_any():
                    yield piece
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._unreachable(error) from error

    def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        return decode_watch_events(self.stream(path, accept=accept))

    async def close(self) -> None:
        for session in [*self._retired, *([self._session] if self._session else [])]:
            await session.close()
        self._retired, self._session = [], None
        if self._wires is not None:
            self._wires.close()
            self._wires = None

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, headers: dict[str, str], body: bytes, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credential = await self._credentials.current()
        session = self._session_for(credential)
        try:
            async with session.request(
                method,
                self._connection.server.rstrip("/") + path,
                headers={**headers, **credential.headers},
                data=body or None,
                timeout=limits,
                proxy=self._connection.proxy or None,
                server_hostname=self._connection.server_name or None,
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    def _wires_for(self, credential: Credential) -> ConnectionPool:
        """Connections belong to a client certificate; what is under way on others ends as it began."""
        wanted = credential.certificate, credential.key
        if self._wires is None or self._wires_of != wanted:
            if self._wires is not None:
                self._wires.close()
            tls: ssl.SSLContext | None = None if self._is_plain else ssl_context(self._connection, credential)
            name = self._connection.server_name
            self._wires = ConnectionPool(self._host, self._port, tls=tls, server_name=name, seconds=CONNECT_SECONDS)
            self._wires_of = wanted
        return self._wires

    def _session_for(self, credential: Credential) -> aiohttp.ClientSession:
        """The session of a client certificate, which belongs to the connection; tokens go with each request.

        A session that is replaced stays open for the streams on it: closing would leave their readers waiting for ever.
        """
        wanted = credential.certificate, credential.key
        if self._session is not None:
            if self._session_of == wanted:
                return self._session
            self._retired.append(self._session)
        connector = aiohttp.TCPConnector(ssl=ssl_context(self._connection, credential), limit=self._limit)
        self._session = aiohttp.ClientSession(
            connector=connector, headers={"User-Agent": self._agent}, auto_decompress=True
        )
        self._session_of = wanted
        return self._session

    def _unreachable(self, error: Exception) -> Unreachable:
        said = str(error) or type(error).__name__
        return Unreachable(
            f"{self._connection.server} does not answer: {said}",
            hint=f"is the API server of {self._connection.origin or 'this kubeconfig'} running?",
        )


async def _answer(response: aiohttp.ClientResponse) -> ApiResponse:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ApiResponse(response.status, await response.read(), headers)


def _pause(answer: ApiResponse) -> float | None:
    """How long a server that is too busy asks us to wait; None if the answer is final."""
    if answer.status not in (429, 503) or "retry-after" not in answer.headers:
        return None
    try:
        return min(float(answer.headers["retry-after"]), 30.0)
    except ValueError:
        return 1.0
