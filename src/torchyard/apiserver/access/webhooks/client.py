"""The HTTPS call of a webhook. Failures read as Go's HTTP client words them, since people search for those words."""

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

# From a service's namespace, name and port to the address it is reached at; LookupError if there is no such service.
Resolve = Callable[[str, str, int], Awaitable[tuple[str, int]]]

MAX_RESPONSE_BYTES = 3 * 1024 * 1024
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}


class WebhookCallError(Exception):
    """A call that brought no answer, and why."""


class _BadStatus(ValueError):
    """An answer whose HTTP status is the message: told without the URL."""


class WebhookClient:
    """Calls webhooks over kept connections. `close` when done; it opens again by itself."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, config: Object, body: bytes, seconds: int) -> bytes:
        """POST a review; the body of the answer. Raises CallFailed."""
        service = config.get("service")
        shown = f"{_service_url(service) if service else config.get('url') or ''}?timeout={seconds}s"
        try:
            url, host = shown, urlsplit(shown).hostname
            if service:
                address, port = await self._address(service)
                literal = f"[{address}]" if ":" in address else address
                url = f"https://{literal}:{port}{urlsplit(shown).path}?timeout={seconds}s"
            async with asyncio.timeout(seconds):
                return await self._post(url, host or "", config.get("caBundle") or "", body)
        except _BadStatus as error:
            raise WebhookCallError(str(error)) from None
        except TimeoutError:
            raise WebhookCallError(f'Post "{shown}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, LookupError, ValueError) as error:
            raise WebhookCallError(f'Post "{shown}": {_worded(error)}') from None

    async def _address(self, service: Object) -> tuple[str, int]:
        name = service.get("name") or ""
        if self._resolve is None:
            raise LookupError(f'service "{name}" not found')
        return await self._resolve(service.get("namespace") or "", name, service.get("port") or 443)

    async def _post(self, url: str, host: str, bundle: str, body: bytes) -> bytes:
        if self._session is None:
            # Some Pythons leave a TLS connection half closed when its peer does not answer: aiohttp knows which.
            connector = aiohttp.TCPConnector(enable_cleanup_closed=NEEDS_CLEANUP_CLOSED)
            self._session = aiohttp.ClientSession(connector=connector)
        async with self._session.post(
            url,
            data=body,
            headers=_HEADERS,
            ssl=_context(bundle),
            server_hostname=host if not _is_address(host) else None,
            allow_redirects=False,
        ) as answer:
            read = await answer.content.read(MAX_RESPONSE_BYTES)
            return _checked(answer.status, answer.headers.get("Content-Type", ""), read)


def _service_url(service: Object) -> str:
    path = service.get("path") or "/"
    port = service.get("port") or 443
    return f"https://{service.get('name')}.{service.get('namespace')}.svc:{port}/{path.lstrip('/')}"


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


@functools.lru_cache(maxsize=64)
def _context(bundle: str) -> ssl.SSLContext:
    """Trust in the authorities of a caBundle, or in the machine's own."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
        raise ValueError("unable to load root certificates: unable to parse bytes as PEM block") from None


def _checked(status: int, content_type: str, body: bytes) -> bytes:
    if status == 404:
        raise _BadStatus("the server could not find the requested resource")
    if status >= 500:
        raise _BadStatus('an error on the server ("unknown") has prevented the request from succeeding')
    if status >= 400:
        raise _BadStatus(f"the server rejected our request for an unknown reason (HTTP {status})")
    if not body:
        raise _BadStatus(f"0-length response with status code: {status} and content type: {content_type}")
    return body


def _worded(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", str(error.certificate_error))
        known = {
            "self-signed certificate": "certificate signed by unknown authority",
            "self signed certificate": "certificate signed by unknown authority",
            "unable to get local issuer certificate": "certificate signed by unknown authority",
            "certificate has expired": "certificate has expired or is not yet valid",
        }
        return f"tls: failed to verify certificate: x509: {known.get(reason, reason)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        why = "connect: connection refused" if refused else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: {why}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)
