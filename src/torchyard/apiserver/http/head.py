"""Heads of HTTP messages: reads a request's where it is plain, writes every answer's. Knows no socket.

What is not plain here is no error: it is for aiohttp to read and to judge.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from torchyard.apiserver.request.response import Response

BODY_LIMIT = 3 << 20

_LINE = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1\r\n")
# Names are RFC 9110's tokens; values hold no control characters, folded lines and bare line feeds among them.
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n")
_LENGTH = re.compile(r"[0-9]{1,9}")
# Who sends one of these wants more than an answer: a body in pieces, another protocol, to be told to go on.
_UNUSUAL = ("Transfer-Encoding", "Upgrade", "Expect")


_BODILESS = (204, 304)


class Fields(NamedTuple):
    """What follows the first line of a request."""

    headers: CIMultiDictProxy[str]
    length: int  # of the body
    stays: bool  # whether the connection stays open after the answer


class Head(NamedTuple):
    method: str
    target: str
    fields: Fields


def read_head(data: bytes) -> Head | None:
    """The head of a plain HTTP/1.1 request, given up to its empty line; None for any other."""
    line = _LINE.match(data)
    fields = _fields(data[line.end() :]) if line else None
    if line is None or fields is None:
        return None
    return Head(line[1].decode(), line[2].decode(), fields)


@lru_cache(maxsize=64)  # a client sends the same ones over and over
def _fields(block: bytes) -> Fields | None:
    if not _FIELDS.fullmatch(block):
        return None
    headers: CIMultiDict[str] = CIMultiDict()
    for line in block[:-4].decode("utf-8", "surrogateescape").split("\r\n") if len(block) > 4 else ():
        name, _, value = line.partition(":")
        headers.add(name, value.strip(" \t"))
    if any(name in headers for name in _UNUSUAL):
        return None
    connection = headers.getall("Connection", ["keep-alive"])
    length = headers.getall("Content-Length", ["0"])
    if len(length) > 1 or not _LENGTH.fullmatch(length[0]) or int(length[0]) > BODY_LIMIT:
        return None
    if len(connection) > 1 or connection[0].lower() not in ("keep-alive", "close"):
        return None
    return Fields(CIMultiDictProxy(headers), int(length[0]), stays=connection[0].lower() == "keep-alive")


def answer_head(response: Response, *lines: str) -> bytes:
    """The head of an answer; `lines` are the header lines that only the connection knows."""
    is_plain = not response.headers and not response.warnings
    said = _plain(response.status, response.content_type) if is_plain else _said(response)
    return "\r\n".join((said, f"Date: {_date(int(time.time()))}", *lines, "\r\n")).encode()


@lru_cache
def _plain(status: int, content_type: str) -> str:
    """What nearly every answer says, all but its date and its length."""
    return _said(Response(status, b"", content_type))


def _said(response: Response) -> str:
    status = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"
    return "\r\n".join((status, *(f"{name}: {value}" for name, value in answer_fields(response))))


def length_line(response: Response, size: int) -> tuple[str, ...]:
    """How an answer says its body's size; nothing where it has none at all."""
    if response.status in _BODILESS:
        return ()
    return (f"Content-Length: {size}",)


def answer_fields(response: Response) -> Iterator[tuple[str, str]]:
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
    plain = "".join(one if one.isprintable() else " " for one in sentence)
    return plain.replace("\\", "\\\\").replace('"', '\\"')
