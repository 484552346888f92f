"""The HTTP transport: an API server reached through a kubeconfig or a pod's service account."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from multidict import CIMultiDict

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.kube.client import JSON, ApiResponse, Unreachable, decode_watch_events, status_error
from torchyard.kube.concurrency import ConcurrencyLimiter
from torchyard.kube.credentials import Credential, CredentialError, Credentials, ssl_context
from torchyard.kube.http_connection import ConnectionPool
from torchyard.kube.kubeconfig import Connection

if TYPE_CHECKING:
    import aiohttp  # loaded for the first stream: commands that only send requests start faster

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
# How often a request is retried when the server is overloaded and sends Retry-After.
RETRIES = 5
_LONGEST_WAIT, _UNSTATED_WAIT = 30.0, 1.0
# A peer that vanished without a word, as after a laptop slept, ends a stream after about a minute.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


Observe = Callable[[str, int, float], None]  # method, status, seconds


class WebSocket:
    """The binary messages of a WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    @property
    def protocol(self) -> str:
        """The subprotocol that the server chose."""
        return self._socket.protocol or ""

    async def send(self, message: bytes) -> None:
        await self._socket.send_bytes(message)

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages until either side closes the connection."""
        import aiohttp

        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data

    async def close(self) -> None:
        await self._socket.close()


class OpenedStream(NamedTuple):
    """A response that has begun. Its chunks must be read to their end or closed."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    chunks: AsyncGenerator[bytes, None]


class HttpTransport:
    """Keeps connections open, and renews credentials after a 401.

    `limiter` bounds the concurrent requests, `observe` is called for every response; neither applies to streams.
    `headers` are sent with every request.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        limit: int = 100,
        limiter: ConcurrencyLimiter | None = None,
        observe: Observe | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._limiter, self._observe = limiter or ConcurrencyLimiter(maximum=limit), observe
        self._connection = connection
        self._credentials = Credentials(connection)
        self._limit = limit
        parts = urlsplit(connection.server)
        self._host, self._prefix = parts.hostname or "", parts.path.rstrip("/")
        self._port, self._is_plain = parts.port or (80 if parts.scheme == "http" else 443), parts.scheme == "http"
        impersonated = [(name, value) for name, values in connection.impersonate.items() for value in values]
        self._own_headers = [("User-Agent", user_agent), *(headers or {}).items(), *impersonated]
        own_lines = (f"{name}: {value}" for name, value in self._own_headers)
        self._fixed_headers = (f"Host: {parts.netloc.rpartition('@')[2]}", *own_lines)
        self._fields_credential: Credential | None = None
        self._known_fields: dict[tuple[str, str], bytes] = {}  # of that credential
        self._pool: ConnectionPool | None = None
        self._pool_identity: tuple[bytes | None, bytes | None] = (None, None)
        self._session: aiohttp.ClientSession | None = None
        self._session_identity: tuple[bytes | None, bytes | None] = (None, None)
        self._retired: list[aiohttp.ClientSession] = []
        self._is_closed = False

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        send = self._send_by_proxy if self._connection.proxy else self._send_directly
        content_type = content_type if body else ""
        renewed = False
        for attempt in range(RETRIES + 1):
            async with self._limiter:
                started = time.perf_counter()
                response = await send(method, path, body, content_type, accept)
            if self._observe is not None:
                self._observe(method, response.status, time.perf_counter() - started)
            if response.status == 401 and not renewed:
                renewed = True
                await self._credentials.current(renew=True)
                continue
            wait = _retry_after(response)
            if wait is None or attempt == RETRIES:
                return response
            self._limiter.back_off(wait)
        return response

    async def _send_directly(self, method: str, path: str, body: bytes, content_type: str, accept: str) -> ApiResponse:
        credential = await self._credentials.current()
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
        if "\n" in path or "\r" in path:
            raise ValueError(f"the path {path!r} contains a line break")
        request = head.encode("latin-1") + self._fields(credential, content_type, accept) + body
        pool = self._pool_for(credential)
        try:
            http = await pool.send(request, idempotent=method in _IDEMPOTENT, seconds=READ_SECONDS)
        except OSError as error:
            raise self._unreachable(error) from error
        return ApiResponse(http.status, http.body, http.headers)

    def _fields(self, credential: Credential, content_type: str, accept: str) -> bytes:
        """The header fields that requests share, up to the empty line; built once for each credential."""
        if credential is not self._fields_credential:
            self._fields_credential, self._known_fields = credential, {}
        fields = self._known_fields.get((content_type, accept))
        if fields is None:
            named = {"Accept": accept, **({"Content-Type": content_type} if content_type else {}), **credential.headers}
            lines = [*self._fixed_headers, *(f"{name}: {value}" for name, value in named.items())]
            if any("\n" in line or "\r" in line for line in lines):
                raise CredentialError(f"the credentials of {self._connection.origin} contain a line break")
            fields = "\r\n".join([*lines, "", ""]).encode("latin-1")
            self._known_fields[content_type, accept] = fields
        return fields

    async def _send_by_proxy(self, method: str, path: str, body: bytes, content_type: str, accept: str) -> ApiResponse:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=READ_SECONDS, connect=CONNECT_SECONDS)
        headers = {"Accept": accept, **({"Content-Type": content_type} if content_type else {})}
        async with self._open_request(method, path, headers, body, timeout) as response:
            return await _read_response(response)

    async def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        async with self._open_request("GET", path, {"Accept": accept}, b"", timeout) as response:
            if response.status >= 400:
                raise status_error(await _read_response(response))
            _detect_vanished_peer(response)
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._unreachable(error) from error
            finally:
                _abort(response)

    async def open_stream(self, path: str, *, accept: str = JSON) -> OpenedStream:
        """Begin a streamed response, whatever its status. Unlike `stream`, it returns before the first chunk."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        async with AsyncExitStack() as opening:
            request = self._open_request("GET", path, {"Accept": accept}, b"", timeout)
            response = await opening.enter_async_context(request)
            if response.status == 401:
                await opening.aclose()
                await self._credentials.current(renew=True)
                request = self._open_request("GET", path, {"Accept": accept}, b"", timeout)
                response = await opening.enter_async_context(request)
            _detect_vanished_peer(response)
            headers = {name.lower(): value for name, value in response.headers.items()}
            chunks = self._chunks(response, opening.pop_all())
            return OpenedStream(response.status, headers, chunks)

    async def _chunks(self, response: aiohttp.ClientResponse, opened: AsyncExitStack) -> AsyncGenerator[bytes, None]:
        import aiohttp

        async with opened:
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._unreachable(error) from error

    def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        return decode_watch_events(self.stream(path, accept=accept))

    @asynccontextmanager
    async def websocket(self, path: str, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        """Yield a WebSocket to a path; close it at the end."""
        import aiohttp

        credential = await self._credentials.current()
        try:
            async with asyncio.timeout(READ_SECONDS):
                opened = await self._session_for(credential).ws_connect(
                    self._connection.server.rstrip("/") + path,
                    protocols=protocols,
                    headers=credential.headers,
                    max_msg_size=0,
                    proxy=self._connection.proxy or None,
                    server_hostname=self._connection.server_name or None,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise StatusError(
                error.status, "", f"the server refused the connection with status {error.status}"
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        _keep_alive(opened.get_extra_info("socket"))
        try:
            yield WebSocket(opened)
        finally:
            await opened.close()

    async def close(self) -> None:
        self._is_closed = True
        for session in [*self._retired, *([self._session] if self._session else [])]:
            await session.close()
        self._retired, self._session = [], None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @asynccontextmanager
    async def _open_request(
        self, method: str, path: str, headers: dict[str, str], body: bytes, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

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

    def _pool_for(self, credential: Credential) -> ConnectionPool:
        """Return the pool for a client certificate. Requests on a replaced pool still complete."""
        self._check_open()
        identity = credential.certificate, credential.key
        if self._pool is None or self._pool_identity != identity:
            if self._pool is not None:
                self._pool.close()
            tls: ssl.SSLContext | None = None if self._is_plain else ssl_context(self._connection, credential)
            name = self._connection.server_name
            self._pool = ConnectionPool(
                self._host, self._port, tls=tls, server_name=name, connect_timeout=CONNECT_SECONDS
            )
            self._pool_identity = identity
        return self._pool

    def _session_for(self, credential: Credential) -> aiohttp.ClientSession:
        """Return the session for a client certificate. Tokens are sent with each request.

        A replaced session stays open for its streams: closing it would leave their readers waiting forever.
        """
        import aiohttp

        self._check_open()
        identity = credential.certificate, credential.key
        if self._session is not None:
            if self._session_identity == identity:
                return self._session
            self._retired.append(self._session)
        connector = aiohttp.TCPConnector(ssl=ssl_context(self._connection, credential), limit=self._limit)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=CIMultiDict(self._own_headers), auto_decompress=True
        )
        self._session_identity = identity
        return self._session

    def _check_open(self) -> None:
        """A task that outlives its client must not open connections that nobody closes."""
        if self._is_closed:
            raise Unreachable(f"the client of {self._connection.server} is closed")

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:  # of ssl, within errors of several libraries
            return Unreachable(
                f"{self._connection.server} is not trusted: {reason}",
                hint=f"is certificate-authority of {self._connection.origin or 'this kubeconfig'} that of the cluster?",
            )
        return Unreachable(
            f"{self._connection.server} does not respond: {reason}",
            hint=f"is the API server of {self._connection.origin or 'this kubeconfig'} running?",
        )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a stream that has not ended, without the TLS shutdown: the server may never answer it."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _detect_vanished_peer(response: aiohttp.ClientResponse) -> None:
    """Let the kernel ask a silent peer whether it is still there: a stream has no time limit of its own."""
    if response.connection is None or response.connection.transport is None:
        return  # the response is complete
    _keep_alive(response.connection.transport.get_extra_info("socket"))


def _keep_alive(connected: socket.socket | None) -> None:
    if connected is None:  # the connection is closed already
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # not everywhere
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _read_response(response: aiohttp.ClientResponse) -> ApiResponse:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ApiResponse(response.status, await response.read(), headers)


def _retry_after(response: ApiResponse) -> float | None:
    """Return the Retry-After seconds of an overloaded server; None if the response is final."""
    if response.status not in (429, 503) or "retry-after" not in response.headers:
        return None
    try:
        seconds = float(response.headers["retry-after"])
    except ValueError:
        return _UNSTATED_WAIT  # a date
    # the event loop cannot wait for nan seconds; a server that names no sensible time still asks for a pause
    return min(seconds, _LONGEST_WAIT) if math.isfinite(seconds) and seconds >= 0 else _UNSTATED_WAIT
