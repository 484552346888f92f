"""Writes the head of a response, on the fast path and for aiohttp alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from torchyard.apiserver.request.response import Response

_BODILESS = (204, 304)


def format_response_head(response: Response, *lines: str) -> bytes:
    """The head of a response; `lines` are the header lines that only the connection knows."""
    is_plain = not response.headers and not response.warnings
    head = _plain_head(response.status, response.content_type) if is_plain else _head(response)
    return "\r\n".join((head, f"Date: {_date(int(time.time()))}", *lines, "\r\n")).encode()


@lru_cache
def _plain_head(status: int, content_type: str) -> str:
    """Most responses differ only in their date and length."""
    return _head(Response(status, b"", content_type))


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
    return (f"Content-Length: {size}",)


def response_headers(response: Response) -> Iterator[tuple[str, str]]:
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
