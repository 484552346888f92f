"""Parses the head of a plain HTTP/1.1 request.

A head that is not plain is not an error: aiohttp parses it and decides. `docs/design/front.md` compares this parser
with httptools.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

BODY_LIMIT = 3 << 20

_request_line = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1\r\n")
# Names are RFC 9110's tokens; values contain no control characters, such as those of folded lines and bare line feeds.
_header_lines = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n")
_content_length_line = re.compile(rb"\r\nContent-Length: ([0-9]{1,9})(?=\r\n)")
_content_length = re.compile(r"[0-9]{1,9}")
# With one of these a request is not plain: a chunked body, another protocol, a 100 Continue.
_FALLBACK_HEADERS = ("Transfer-Encoding", "Upgrade", "Expect")


class RequestHead(NamedTuple):
    method: str
    target: str
    headers: CIMultiDictProxy[str]
    content_length: int
    keep_alive: bool


class _Headers(NamedTuple):
    headers: CIMultiDictProxy[str]
    content_length: int | None  # None: not among these headers
    keep_alive: bool


def parse_request_head(data: bytes) -> RequestHead | None:
    """The head of a plain request, up to and including its empty line; None for any other."""
    line = _request_line.match(data)
    if line is None:
        return None
    start = line.end() - 2
    # A client repeats its headers from request to request, all but the length of the body. So that line is taken out,
    # and the rest is nearly always in the cache.
    length = _content_length_line.search(data, start)
    if length is None:
        headers = _parse_headers(data[start:])
        size = 0 if headers is None else headers.content_length or 0
    else:
        headers = _parse_headers(data[start : length.start()] + data[length.end() :])
        size = int(length[1])
        if headers is not None and headers.content_length is not None:
            return None
    if headers is None or size > BODY_LIMIT:
        return None
    return RequestHead(line[1].decode(), line[2].decode(), headers.headers, size, headers.keep_alive)


@lru_cache(maxsize=64)
def _parse_headers(block: bytes) -> _Headers | None:
    """Header lines, from the line break before them to the empty line after them; None if they are not plain."""
    if not _header_lines.fullmatch(block, 2):
        return None
    headers: CIMultiDict[str] = CIMultiDict()
    for line in block[2:-4].decode("utf-8", "surrogateescape").split("\r\n") if len(block) > 6 else ():
        name, _, value = line.partition(":")
        headers.add(name, value.strip(" \t"))
    if any(name in headers for name in _FALLBACK_HEADERS):
        return None
    lengths = headers.getall("Content-Length", [])
    if len(lengths) > 1 or not all(_content_length.fullmatch(length) for length in lengths):
        return None
    connection = headers.getall("Connection", ["keep-alive"])
    if len(connection) > 1 or connection[0].lower() not in ("keep-alive", "close"):
        return None
    return _Headers(
        CIMultiDictProxy(headers),
        int(lengths[0]) if lengths else None,
        keep_alive=connection[0].lower() == "keep-alive",
    )
