"""The HTTPS client for webhooks. Error texts are those of Go's HTTP client, because users search for them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from torchyard.api.objects import Object

# From a service's namespace, name and port to the address and port of an endpoint. Raises LookupError without one.
ServiceResolver = Callable[[str, str, int], Awaitable[tuple[str, int]]]

MAX_RESPONSE_BYTES = 3 * 1024 * 1024
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}


class WebhookCallError(Exception):
    """A webhook call that returned no response body, and why."""


class _BadStatus(ValueError):
    """A response with an error status; its message does not contain the URL."""


class WebhookClient:
    """Calls webhooks over persistent connections. `close` it when done; it reopens on the next call."""

    def __init__(self, resolve: ServiceResolver | None = None) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
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
            async with asyncio.timeout(seconds):
                return await self._post(url, host or "", config.get("caBundle") or "", body)
        except _BadStatus as error:
            raise WebhookCallError(str(error)) from None
        except TimeoutError:
            raise WebhookCallError(f'Post "{display_url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
            raise WebhookCallError(f'Post "{display_url}": {_go_error_text(error)}') from None

    async def _address(self, service: Object) -> tuple[str, int]:
        name = service.get("name") or ""
        if self._resolve is None:
            raise LookupError(f'service "{name}" not found')
        return await self._resolve(service.get("namespace") or "", name, service.get("port") or 443)

    async def _post(self, url: str, host: str, bundle: str, body: bytes) -> bytes:
        if self._session is None:
            # Some Python versions leave a TLS connection half closed when the peer is silent; aiohttp knows which.
            connector = aiohttp.TCPConnector(enable_cleanup_closed=NEEDS_CLEANUP_CLOSED)
            self._session = aiohttp.ClientSession(connector=connector)
        async with self._session.post(
            url,
            data=body,
            headers=_HEADERS,
            ssl=_context(bundle),
            server_hostname=host if not _is_address(host) else None,
            allow_redirects=False,
        ) as response:
            body_read = await response.content.read(MAX_RESPONSE_BYTES)
            return _check_status(response.status, response.headers.get("Content-Type", ""), body_read)


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


def _check_status(status: int, content_type: str, body: bytes) -> bytes:
    if status == 404:
        raise _BadStatus("the server could not find the requested resource")
    if status >= 500:
        raise _BadStatus('an error on the server ("unknown") has prevented the request from succeeding')
    if status >= 400:
        raise _BadStatus(f"the server rejected our request for an unknown reason (HTTP {status})")
    if not body:
        raise _BadStatus(f"0-length response with status code: {status} and content type: {content_type}")
    return body


def _go_error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", str(error.certificate_error))
        go_reasons = {
            "self-signed certificate": "certificate signed by unknown authority",
            "self signed certificate": "certificate signed by unknown authority",
            "unable to get local issuer certificate": "certificate signed by unknown authority",
            "certificate has expired": "certificate has expired or is not yet valid",
        }
        return f"tls: failed to verify certificate: x509: {go_reasons.get(reason, reason)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        reason = "connect: connection refused" if refused else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: {reason}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)
