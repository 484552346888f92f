"""The HTTPS client for webhooks. Error texts are those of Go's HTTP client, because users search for them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from torchyard.api.objects import Object
from torchyard.apiserver.service_network.connector import DialingConnector, certificate_problem
from torchyard.apiserver.service_network.dialer import Dialer, dial_machine_network
from torchyard.apiserver.service_network.resolver import NoReadyEndpoint

# From a service's namespace, name and port to the address and port of an endpoint. Raises LookupError without one.
ResolveService = Callable[[str, str, int], Awaitable[tuple[str, int]]]

MAX_RESPONSE_BYTES = 3 * 1024 * 1024
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    # A compressed response could be small and expand without limit.
    "Accept-Encoding": "identity",
    "User-Agent": "kube-apiserver-admission",
}


class WebhookCallError(Exception):
    """A webhook call that returned no response body, and why."""


class _BadStatus(ValueError):
    """A response that is an error or too large; its message does not contain the URL."""


class WebhookClient:
    """Calls webhooks over persistent connections. `close` it when done; it reopens on the next call.

    `resolve` and `dial` find and reach the endpoints of Services, which are in the pods' network.
    """

    def __init__(self, resolve: ResolveService | None = None, dial: Dialer = dial_machine_network) -> None:
        self._resolve, self._dial = resolve, dial
        self._session: aiohttp.ClientSession | None = None
        self._service_session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        sessions, self._session, self._service_session = (self._session, self._service_session), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def call(self, config: Object, body: bytes, seconds: int) -> bytes:
        """POST a review and return the response body. Raises WebhookCallError."""
        service = config.get("service")
        display_url = f"{_service_url(service) if service else config.get('url') or ''}?timeout={seconds}s"
        try:
            url, host = display_url, urlsplit(display_url).hostname
            if service:
                address, port = await self._address(service)
                literal = f"[{address}]" if ":" in address else address
                url = f"https://{literal}:{port}{urlsplit(display_url).path}?timeout={seconds}s"
            session = self._sessions(is_service=bool(service))
            async with asyncio.timeout(seconds):
                return await _post(session, url, host or "", config.get("caBundle") or "", body)
        except _BadStatus as error:
            raise WebhookCallError(str(error)) from None
        except aiohttp.ClientPayloadError:
            message = "unexpected error when reading response body. Please retry. Original error: unexpected EOF"
            raise WebhookCallError(message) from None
        except TimeoutError:
            raise WebhookCallError(f'Post "{display_url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
            raise WebhookCallError(f'Post "{display_url}": {_go_error_text(error)}') from None

    async def _address(self, service: Object) -> tuple[str, int]:
        name = service.get("name") or ""
        if self._resolve is None:
            raise LookupError(f'service "{name}" not found')
        return await self._resolve(service.get("namespace") or "", name, service.get("port") or 443)

    def _sessions(self, *, is_service: bool) -> aiohttp.ClientSession:
        if is_service:
            if self._service_session is None:
                self._service_session = _session(DialingConnector(self._dial, keep_alive=True))
            return self._service_session
        if self._session is None:
            # Some Python versions leave a TLS connection half closed when the peer is silent; aiohttp knows which.
            # No limit on connections: calls of a slow webhook must not keep those of another one waiting.
            self._session = _session(aiohttp.TCPConnector(limit=0, enable_cleanup_closed=NEEDS_CLEANUP_CLOSED))
        return self._session


async def _post(session: aiohttp.ClientSession, url: str, host: str, bundle: str, body: bytes) -> bytes:
    """Send the request again if a persistent connection turns out to be closed: webhooks close idle ones."""
    while True:
        attempt = _Attempt()
        try:
            return await _post_once(session, url, host, bundle, body, attempt=attempt)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not attempt.is_reused:
                raise


async def _post_once(
    session: aiohttp.ClientSession, url: str, host: str, bundle: str, body: bytes, *, attempt: _Attempt
) -> bytes:
    async with session.post(
        url,
        data=body,
        headers=_HEADERS,
        ssl=_context(bundle),
        server_hostname=host if not _is_address(host) else None,
        allow_redirects=False,
        trace_request_ctx=attempt,
    ) as response:
        try:
            content = await _read_body(response.content)
        except BaseException:
            _abort(response)
            raise
        return _check_status(response.status, response.headers.get("Content-Type", "application/json"), content)


@dataclass
class _Attempt:
    is_reused: bool = False  # whether the request went over a connection that had been used before


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    async def reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: object) -> None:
        context.trace_request_ctx.is_reused = True

    traces = aiohttp.TraceConfig()
    traces.on_connection_reuseconn.append(reused)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # asyncio loses what it has not yet decrypted when the peer closes while reading is paused.
        read_bufsize=MAX_RESPONSE_BYTES,
        trace_configs=[traces],
    )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop a connection whose response was not read to its end.

    An orderly close would wait for the peer's, and go on decrypting all that it sends until then.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def _read_body(content: aiohttp.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in content.iter_any():
        size += len(part)
        if size > MAX_RESPONSE_BYTES:
            raise _BadStatus(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _service_url(service: Object) -> str:
    path = service.get("path") or "/"
    port = service.get("port") or 443
    return f"https://{service.get('name')}.{service.get('namespace')}.svc:{port}/{path.lstrip('/')}"


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


@functools.lru_cache(maxsize=64)
def _context(bundle: str) -> ssl.SSLContext:
    """A context that trusts the authorities of a caBundle, or the machine's own without one."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
        raise ValueError("unable to load root certificates: unable to parse bytes as PEM block") from None


# client-go's messages for responses without a Status of their own.
_STATUS_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "unknown",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


def _check_status(status: int, content_type: str, body: bytes) -> bytes:
    if 300 <= status < 400:
        # Upstream follows redirects. A webhook must not choose what else the plane sends its users' objects to.
        raise _BadStatus(f"the server responded with the redirect {status}, which is not followed")
    if status >= 400:
        raise _BadStatus(_status_message(body) or _STATUS_MESSAGES.get(status) or _unknown_status(status))
    if not body:
        raise _BadStatus(f"0-length response with status code: {status} and content type: {content_type}")
    return body


def _status_message(body: bytes) -> str:
    """The message of a response that is a Status."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(status, dict) or (status.get("kind"), status.get("apiVersion")) != ("Status", "v1"):
        return ""
    message = status.get("message")
    return message if isinstance(message, str) else ""


def _unknown_status(status: int) -> str:
    if status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"


def _go_error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return certificate_problem(error)
    if isinstance(error, NoReadyEndpoint):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, socket.gaierror):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        reason = "connect: connection refused" if refused else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, ConnectionResetError):
        return "read: connection reset by peer"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error.message}"
    return str(error)
