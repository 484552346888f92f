"""Passes a request to a pod and returns its response, with the headers that httputil.ReverseProxy sends and removes."""

from __future__ import annotations

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.apiserver.proxy.content_sniffer import content_type
from torchyard.apiserver.proxy.html_rewriter import HtmlRewriter
from torchyard.apiserver.proxy.location import ProxyTarget
from torchyard.apiserver.proxy.url_rewriter import UrlRewriter
from torchyard.apiserver.request.response import ProxiedHead, Response, StreamAborted
from torchyard.apiserver.service_network.connector import (
    DialingConnector,
    certificate_problem,
    verification_problem,
)
from torchyard.apiserver.service_network.dialer import Dialer

_HOP_BY_HOP = (
    *("Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization"),
    *("Te", "Trailer", "Transfer-Encoding", "Upgrade"),
)
_CORS = tuple(f"Access-Control-Allow-{name}" for name in ("Credentials", "Headers", "Methods", "Origin"))
_BODILESS = (204, 304)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What is sent to the pod. `headers` are the client's; `prefix` is the path of the proxy itself."""

    target: ProxyTarget
    method: str
    path: str  # escaped, with the query
    headers: CIMultiDict[str]
    body: bytes | AsyncIterator[bytes]
    prefix: str
    forwarded_uri: str
    remote: str
    tls: ssl.SSLContext | None = None  # None: certificates are not verified
    server_name: str | None = None  # in the certificate, if it is not the host
    own_headers: tuple[tuple[str, str], ...] = ()  # replace those of the client, which cannot remove them

    @property
    def host(self) -> str:
        return self.headers.get("Host", "")

    def sent_headers(self, *, keep_upgrade: bool = False) -> CIMultiDict[str]:
        """Raises 503, as Go's transport does, for a value that would end its line, such as a user's name."""
        headers = CIMultiDict(self.headers)
        trailers = any("trailers" in value.lower() for value in headers.getall("Te", ()))
        upgrade = headers.getall("Upgrade", [])
        _remove_hop_by_hop(headers)
        if trailers:
            headers["Te"] = "trailers"
        if keep_upgrade:
            headers.update({"Connection": "Upgrade", "Upgrade": upgrade[0] if upgrade else ""})
        forwarded = [value for value in (*headers.popall("X-Forwarded-For", ()), self.remote) if value]
        if forwarded:
            headers["X-Forwarded-For"] = ", ".join(forwarded)
        headers["X-Forwarded-Uri"] = self.forwarded_uri
        for name, _ in self.own_headers:
            headers.popall(name, None)
        headers.extend(self.own_headers)
        for name, value in headers.items():
            if _CONTROL.search(value):
                raise unreachable(ValueError(f'net/http: invalid header field value for "{name}"'), self.target)
        return headers


def _remove_hop_by_hop(headers: CIMultiDict[str]) -> None:
    named = [name.strip() for value in headers.getall("Connection", ()) for name in value.split(",")]
    for name in (*named, *_HOP_BY_HOP):
        if name.lower() != "host":  # to Go it is not a header
            headers.popall(name, None)


@lru_cache(maxsize=1)
def insecure_context() -> ssl.SSLContext:
    """Pods are reached by address, which no certificate names: as upstream, it is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def unreachable(error: Exception, target: ProxyTarget) -> StatusError:
    """The Status for a pod that cannot be reached, with the reason as Go writes it."""
    reason = str(error)
    os_error = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = certificate_problem(error)
    elif isinstance(os_error, ssl.SSLCertVerificationError):
        reason = verification_problem(os_error)
    elif isinstance(os_error, ssl.SSLError):
        reason = "tls: first record does not look like a TLS handshake"
    elif isinstance(error, TimeoutError):
        reason = f"dial tcp {target.netloc}: i/o timeout"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        reason = "EOF"
    elif isinstance(os_error, ConnectionResetError):
        reason = f"read tcp {target.netloc}: read: connection reset by peer"
    elif isinstance(os_error, OSError):
        text = "connection refused" if isinstance(os_error, ConnectionRefusedError) else os_error.strerror or reason
        reason = f"dial tcp {target.netloc}: connect: {text.lower()}"
    status = errors.unavailable(f"error trying to reach service: {reason}")
    status.headers.clear()
    return status


async def forward(request: ProxyRequest, dial: Dialer) -> Response:
    """The response of the pod; its body is streamed. 503 if the pod cannot be reached."""
    headers = request.sent_headers()
    is_own_encoding = "Accept-Encoding" not in headers and "Range" not in headers and request.method != "HEAD"
    if is_own_encoding:
        headers["Accept-Encoding"] = "gzip"
    session = aiohttp.ClientSession(
        connector=DialingConnector(dial, keep_alive=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None),
        requote_redirect_url=False,
    )
    try:
        response = await session.request(
            request.method,
            URL(f"{request.target.scheme}://{request.target.netloc}{request.path}", encoded=True),
            headers=headers,
            data=request.body or (b"" if "Content-Length" in headers else None),
            ssl=request.tls or insecure_context(),
            server_hostname=request.server_name,
            allow_redirects=False,
        )
        return await _response(request, response, session, is_own_encoding=is_own_encoding)
    except (aiohttp.ClientError, OSError) as error:
        await session.close()
        raise unreachable(error, request.target) from None
    except BaseException:
        await session.close()
        raise


async def _response(
    request: ProxyRequest,
    response: aiohttp.ClientResponse,
    session: aiohttp.ClientSession,
    *,
    is_own_encoding: bool,
) -> Response:
    headers = CIMultiDict(response.headers)
    length = int(headers["Content-Length"]) if headers.get("Content-Length", "").isdigit() else None
    headers.popall("Content-Length", None)
    _remove_hop_by_hop(headers)
    for name in _CORS:
        headers.popall(name, None)
    result = Response(response.status, is_raw=True)
    chunks = _chunks(response, session)
    if request.method == "HEAD" or response.status in _BODILESS:
        await chunks.aclose()
        await session.close()
    else:
        if is_own_encoding and headers.get("Content-Encoding", "").lower() == "gzip":
            headers.popall("Content-Encoding")
            chunks, length = _decompress(chunks), None
        is_redirect = _rewrite_location(request, headers)
        if not is_redirect and headers.get("Content-Type", "").partition(";")[0].strip() == "text/html":
            chunks, length = _rewrite_html(request, headers, chunks), None
        result.body = await _with_type(headers, chunks)
    if request.method == "HEAD":
        _rewrite_location(request, headers)
    result.proxied = ProxiedHead([("Cache-Control", "no-cache, private"), *headers.items()], length)
    return result


async def _chunks(response: aiohttp.ClientResponse, session: aiohttp.ClientSession) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError) as error:
        raise StreamAborted(str(error)) from None
    finally:
        response.close()
        await session.close()


def _rewrite_location(request: ProxyRequest, headers: CIMultiDict[str]) -> bool:
    location = headers.get("Location")
    if not location:
        return False
    headers["Location"] = _rewriter(request).rewrite(location)
    return True


def _rewriter(request: ProxyRequest) -> UrlRewriter:
    return UrlRewriter(request.prefix, request.target.netloc, request.host)


async def _decompress(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        async for chunk in chunks:
            rest = chunk
            while True:  # in pieces: a few bytes can inflate to more than the memory
                piece = inflate.decompress(rest, _PIECE_BYTES)
                rest = inflate.unconsumed_tail
                if piece:
                    yield piece
                if not rest and len(piece) < _PIECE_BYTES:
                    break
                await asyncio.sleep(0)
    except zlib.error as error:
        raise StreamAborted(str(error)) from None
    finally:
        await chunks.aclose()


async def _rewrite_html(
    request: ProxyRequest, headers: CIMultiDict[str], chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Rewrite a document that is plain or compressed with gzip; another encoding stays as it is."""
    encoding = headers.get("Content-Encoding", "").lower()
    if encoding not in ("", "gzip"):
        async for chunk in chunks:
            yield chunk
        return
    rewriter = HtmlRewriter(_rewriter(request).rewrite)
    if encoding == "gzip":
        compress = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        async with aclosing(_decompress(chunks)) as pieces:
            async for piece in pieces:
                if compressed := compress.compress(rewriter.feed(piece)):
                    yield compressed
        yield compress.compress(rewriter.finish()) + compress.flush()
        return
    try:
        async for chunk in chunks:
            yield rewriter.feed(chunk)
        yield rewriter.finish()
    finally:
        await chunks.aclose()


async def _with_type(
    headers: CIMultiDict[str], chunks: AsyncGenerator[bytes, None]
) -> bytes | AsyncGenerator[bytes, None]:
    """Add the type of a body that has none, as Go's HTTP server does."""
    if "Content-Type" in headers:
        return chunks
    first = await anext(chunks, b"")
    if not first:
        await chunks.aclose()
        return b""
    if "Content-Encoding" not in headers:
        headers["Content-Type"] = content_type(first)

    async def all_chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield first
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()

    return all_chunks()
