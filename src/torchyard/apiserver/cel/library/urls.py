"""URLs, parsed as Go's net/url does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, STRING, list_of, map_of, opaque

_URL = opaque("kubernetes.URL")


@dataclass(frozen=True, slots=True)
class Url:
    cel_name: ClassVar[str] = "kubernetes.URL"
    text: str

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.text)


def _parse(text: str) -> Url:
    """An absolute URL or an absolute path."""
    is_absolute = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) or text.startswith("/")
    if not is_absolute or re.search(r"[\x00-\x20\x7f]", text):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None
    return Url(text)


def is_url(text: str) -> bool:
    try:
        _parse(text)
    except EvaluationError:
        return False
    return True


def _host(url: Url) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = re.sub(r":\d*$", "", _host(url))
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _port(url: Url) -> str:
    match = re.search(r":(\d+)$", _host(url))
    return match.group(1) if match else ""


def _query(url: Url) -> dict[str, list[str]]:
    return parse_qs(url.parts.query, keep_blank_values=True)


def _escaped_path(url: Url) -> str:
    path = url.parts.path
    return quote(unquote(path), safe="/$&+,:;=@!*'()~") if "%" not in path else path


FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("url", _parse, overload(STRING, result=_URL)),
    function("isURL", is_url, overload(STRING, result=BOOL)),
    function("getScheme", lambda url: url.parts.scheme, member_overload(_URL, result=STRING)),
    function("getHost", _host, member_overload(_URL, result=STRING)),
    function("getHostname", _hostname, member_overload(_URL, result=STRING)),
    function("getPort", _port, member_overload(_URL, result=STRING)),
    function("getEscapedPath", _escaped_path, member_overload(_URL, result=STRING)),
    function("getQuery", _query, member_overload(_URL, result=map_of(STRING, list_of(STRING)))),
)
