"""Writes the head of a response, on the fast path and for aiohttp alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from torchyard.apiserver.request.response import JSON, Response

_BODILESS = (204, 304)


def format_response_head(response: Response, *lines: str) -> bytes:
    """The head of a response; `lines` are the header lines that only the connection knows."""
    second = int(time.time())
    if response.headers or response.warnings or response.proxied is not None:
        start = _start(response, second)
    else:
        start = _plain_start(response.status, response.content_type, second)
    return start + "\r\n".join((*lines, "\r\n")).encode()


def format_json_response(body: bytes) -> bytes:
    """200 with JSON, head and body: the most frequent response."""
    return b"%bContent-Length: %d\r\n\r\n%b\n" % (_plain_start(200, JSON, int(time.time())), len(body) + 1, body)


@lru_cache(maxsize=16)
def _plain_start(status: int, content_type: str, second: int) -> bytes:
    """Most responses differ only in their date and length."""
    return _start(Response(status, b"", content_type), second)


def _start(response: Response, second: int) -> bytes:
    # A pod's header may have any bytes; they are passed on.
    return f"{_head(response)}\r\nDate: {_date(second)}\r\n".encode("utf-8", "surrogateescape")


def _head(response: Response) -> str:
    status = f"HTTP/1.1 {response.status} {_phrase(response.status)}"
    return "\r\n".join((status, *(f"{name}: {value}" for name, value in response_headers(response))))


def _phrase(status: int) -> str:
    """The status's phrase; of a status that only a webhook knows, what Go's HTTP server writes."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status code {status}"


def content_length_lines(response: Response, size: int) -> tuple[str, ...]:
    """The Content-Length header; none for a status that has no body."""
    if response.status in _BODILESS:
        return ()
    if response.proxied is not None and response.proxied.length is not None:
        size = response.proxied.length
    return (f"Content-Length: {size}",)


def response_headers(response: Response) -> Iterator[tuple[str, str]]:
    if response.proxied is not None:
        yield from response.proxied.headers
        return
    yield "Content-Type", response.content_type
    if "Cache-Control" not in response.headers:
        yield "Cache-Control", "no-cache, private"
    yield from response.headers.items()
    for sentence in response.warnings:
        yield "Warning", f'299 - "{_quoted(sentence)}"'


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _quoted(sentence: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in sentence)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
