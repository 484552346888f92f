"""Parses the head of an HTTP/1.x request: a fast path for plain requests, and all others as Go's net/http does.

`docs/design/front.md` compares the fast path with httptools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from torchyard.apiserver.http.limits import BODY_LIMIT

CHUNKED = -1

_request_line = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1(?=\r\n)")
# Names are RFC 9110's tokens; values contain no control characters, such as those of folded lines and bare line feeds.
_header_lines = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n")
_content_length_line = re.compile(rb"\r\nContent-Length: ([0-9]{1,9})(?=\r\n)")
_content_length = re.compile(r"[0-9]{1,9}")
# With one of these a request is not plain: a chunked body, another protocol, a 100 Continue.
_SPECIAL_HEADERS = ("Transfer-Encoding", "Upgrade", "Expect")
_UPGRADED_SUBRESOURCES = ("/exec", "/attach", "/portforward")
_proxy_path = re.compile("/api/v1/namespaces/[^/]+/(?:pods|services)/[^/]+/proxy(?:/|$)")
_head_end = re.compile(rb"\n\r?\n")
_token = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_version = re.compile(rb"HTTP/([0-9])\.([0-9])")
_value = re.compile(rb"[\t -~\x80-\xff]*")
_host = re.compile(rb"[A-Za-z0-9!$%&'()*+,.:;=@\[\]_~-]*")
_path = re.compile(rb"(?:[!-$&-~\x80-\xff]|%[0-9A-Fa-f]{2})*")
_absolute = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


class RequestHead(NamedTuple):
    method: str
    target: str
    headers: CIMultiDictProxy[str]
    content_length: int  # CHUNKED: the body is chunked
    keep_alive: bool
    is_http_1_0: bool = False
    expects_continue: bool = False
    is_upgrade: bool = False  # goes to aiohttp: exec, attach, port-forward, WebSockets, and streams through proxies


class MalformedRequest(Exception):
    """A request that net/http rejects before any handler sees it; the connection is closed."""

    def __init__(self, status: str = "400 Bad Request", text: str | None = None) -> None:
        super().__init__(text or status)
        self.status = status
        self.text = status if text is None else text

    def response(self) -> bytes:
        """The response, byte for byte Go's."""
        headers = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        return f"HTTP/1.1 {self.status}\r\n{headers}{self.text}".encode()


def _bad_request(reason: str) -> MalformedRequest:
    return MalformedRequest(f"400 Bad Request: {reason}")


HEAD_TOO_LARGE = MalformedRequest("431 Request Header Fields Too Large")


class _Headers(NamedTuple):
    headers: CIMultiDictProxy[str]
    content_length: int | None  # None: not among these headers
    keep_alive: bool


def find_head_end(data: bytearray, start: int) -> int:
    """Where the head in `data` ends, or -1 if it is incomplete; `start` is how much was searched before."""
    match = _head_end.search(data, max(0, start - 3))
    return -1 if match is None else match.end()


def parse_plain_head(data: bytes) -> RequestHead | None:
    """The head of a plain request, up to and including its empty line; None for any other."""
    line = _request_line.match(data)
    if line is None:
        return None
    start = line.end()
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
    method, target = line.groups()
    if b"%" in target and not _path.fullmatch(target.partition(b"?")[0]):
        return None
    return RequestHead(method.decode(), target.decode(), headers.headers, size, headers.keep_alive)


@lru_cache(maxsize=64)
def _parse_headers(block: bytes) -> _Headers | None:
    """Header lines, from the line break before them to the empty line after them; None if they are not plain."""
    if not _header_lines.fullmatch(block, 2):
        return None
    headers: CIMultiDict[str] = CIMultiDict()
    for line in block[2:-4].decode("utf-8", "surrogateescape").split("\r\n") if len(block) > 6 else ():
        name, _, value = line.partition(":")
        headers.add(name, value.strip(" \t"))
    if any(name in headers for name in _SPECIAL_HEADERS):
        return None
    hosts = headers.getall("Host", [])
    if len(hosts) != 1 or not _host.fullmatch(hosts[0].encode("utf-8", "surrogateescape")):
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


def parse_head(data: bytes) -> RequestHead:
    """The head of any request, as net/http reads it. Raises `MalformedRequest`."""
    first, *lines = [line.removesuffix(b"\r") for line in data.split(b"\n")[:-2]]
    method, target, (major, minor) = _parse_request_line(first)
    headers = _parse_header_lines(lines)
    _check_headers(headers)
    if major != 1:
        raise MalformedRequest("505 HTTP Version Not Supported: unsupported protocol version")
    is_http_1_0 = minor == 0
    hosts = [value for name, value in headers if name.lower() == "host"]
    _check_host(hosts, required=not is_http_1_0 and method != "CONNECT")
    decoded: CIMultiDict[str] = CIMultiDict((name, value.decode("utf-8", "surrogateescape")) for name, value in headers)
    length = _body_length(decoded, is_http_1_0=is_http_1_0)
    tokens = [token.strip().lower() for value in decoded.getall("Connection", []) for token in value.split(",")]
    expectation = decoded.get("Expect", "")
    expects_continue = "100-continue" in [token.strip().lower() for token in expectation.split(",")]
    if expectation and not expects_continue:
        raise MalformedRequest("417 Expectation Failed", "")
    return RequestHead(
        method,
        target,
        CIMultiDictProxy(decoded),
        length,
        keep_alive="keep-alive" in tokens if is_http_1_0 else "close" not in tokens,
        is_http_1_0=is_http_1_0,
        expects_continue=expects_continue and not is_http_1_0,
        # A body for a pod that is too large, or of unknown size, to be read first is streamed.
        is_upgrade=((length == CHUNKED or length > BODY_LIMIT) and _is_proxied(target))
        or ("Upgrade" in decoded and length == 0 and (_may_upgrade(target) or _is_websocket_stream(target, decoded))),
    )


def _may_upgrade(target: str) -> bool:
    """Whether a handler may upgrade the connection: a pod's stream, a proxy, or an extension API server's resource."""
    if target.partition("?")[0].rstrip("/").endswith(_UPGRADED_SUBRESOURCES):
        return True
    return target.startswith("/apis/") or _is_proxied(target)


def _is_websocket_stream(target: str, headers: Mapping[str, str]) -> bool:
    """Whether a page in a browser follows a watch or a log."""
    path, _, query = target.partition("?")
    is_stream = "watch" in query or "/watch/" in path or path.endswith("/log")
    return is_stream and headers.get("Upgrade", "").lower() == "websocket"


def _is_proxied(target: str) -> bool:
    return _proxy_path.match(target.partition("?")[0]) is not None


def _parse_request_line(line: bytes) -> tuple[str, str, tuple[int, int]]:
    method, _, rest = line.partition(b" ")
    target, space, protocol = rest.partition(b" ")
    if not space or not _token.fullmatch(method):
        raise MalformedRequest
    version = _version.fullmatch(protocol)
    if version is None:
        raise MalformedRequest
    absolute = _absolute.match(target)
    if absolute is not None:
        target = target[absolute.end() :]
        target = target if target.startswith(b"/") else b"/" + target
    path, question, query = target.partition(b"?")
    if not (path.startswith(b"/") or path == b"*") or not _path.fullmatch(path):
        raise MalformedRequest
    if any(byte < 0x21 or byte == 0x7F for byte in query):
        raise MalformedRequest
    text = (path + question + query).decode("utf-8", "surrogateescape")
    return method.decode(), text, (int(version[1]), int(version[2]))


def _parse_header_lines(lines: list[bytes]) -> list[tuple[str, bytes]]:
    """Lines that begin with a space continue the line before, as in net/http."""
    headers: list[tuple[str, bytes]] = []
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            if not unfolded:
                raise MalformedRequest
            unfolded[-1] = unfolded[-1].rstrip(b" \t") + b" " + line.strip(b" \t")
        else:
            unfolded.append(line)
    for line in unfolded:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise MalformedRequest
        headers.append((name.decode("latin-1"), value.strip(b" \t")))
    return headers


def _check_headers(headers: list[tuple[str, bytes]]) -> None:
    for name, value in headers:
        if not _token.fullmatch(name.encode("latin-1")):
            raise _bad_request("invalid header name") if " " in name else MalformedRequest
        if not _value.fullmatch(value):
            raise _bad_request("invalid header value")


def _check_host(hosts: list[bytes], *, required: bool) -> None:
    if len(hosts) > 1:
        raise MalformedRequest
    if not hosts and required:
        raise _bad_request("missing required Host header")
    if hosts and not _host.fullmatch(hosts[0]):
        raise _bad_request("malformed Host header")


def _body_length(headers: CIMultiDict[str], *, is_http_1_0: bool) -> int:
    encodings = headers.popall("Transfer-Encoding", [])
    if encodings and not is_http_1_0:
        if len(encodings) > 1 or encodings[0].lower() != "chunked":
            raise MalformedRequest("501 Not Implemented", "Unsupported transfer encoding")
        headers.popall("Content-Length", None)
        return CHUNKED
    lengths = set(headers.popall("Content-Length", []))
    if not lengths:
        return 0
    if len(lengths) > 1:
        raise MalformedRequest
    (length,) = lengths
    if not length.isascii() or not length.isdigit() or len(length.lstrip("0")) > 19 or int(length) >= 1 << 63:
        raise MalformedRequest
    headers.add("Content-Length", length)
    return int(length)
