"""Rewrites URLs of a proxied server, so that they lead through the proxy again. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlsplit, urlunsplit

# What net/url leaves in a path; everything else is escaped.
_KEPT = "$&+,/:;=@"


def escape_path(path: bytes) -> str:
    return quote(path, safe=_KEPT)


def join_path(*elements: str) -> str:
    """As Go's path.Join: cleaned, without empty segments, `.` and `..`."""
    joined = "/".join(element for element in elements if element)
    if not joined:
        return ""
    cleaned = posixpath.normpath(joined)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def join_with_slash(prefix: str, path: str) -> str:
    """The joined path, with the trailing slash of the second one."""
    joined = join_path(prefix, path)
    return f"{joined}/" if path.endswith("/") and not joined.endswith("/") else joined


def clean_path(path: str) -> str:
    """The path without empty segments, `.` and `..`, with its trailing slash."""
    return join_with_slash("", path)


@dataclass(frozen=True, slots=True)
class UrlRewriter:
    prefix: str  # the path of the proxy itself, decoded
    backend: str  # the host and port of the proxied server
    host: str  # the Host header of the request

    def rewrite(self, text: str) -> str:
        """The URL through the proxy. A URL of another host, or a relative one, stays as it is."""
        try:
            url = urlsplit(text)
        except ValueError:
            return text
        if url.netloc not in ("", self.backend, self.host) or not url.path.startswith("/"):
            return text
        scheme, netloc = (url.scheme, url.netloc) if url.netloc and url.netloc == self.host else ("", "")
        decoded = _to_text(unquote_to_bytes(_to_bytes(url.path)))
        is_rewritten = decoded.startswith(self.prefix)
        path = url.path if is_rewritten else escape_path(_to_bytes(join_with_slash(self.prefix, decoded)))
        return urlunsplit((scheme, netloc, path, url.query, url.fragment))


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
