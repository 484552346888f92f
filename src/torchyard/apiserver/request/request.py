"""An HTTP request without its transport: connections and in-process clients build the same type."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from torchyard.api import errors
from torchyard.apiserver.access.authentication import User


class Query:
    """Query parameters, parsed as a Go server does."""

    __slots__ = ("_values", "text")

    def __init__(self, text: str = "", values: Mapping[str, list[str]] | None = None) -> None:
        self.text = text  # as the client wrote it
        self._values: dict[str, list[str]] = dict(values) if values else {}
        if text:
            for name, value in _pairs(text):
                self._values.setdefault(name, []).append(value)

    def get(self, name: str, default: str = "") -> str:
        values = self._values.get(name)
        return values[0] if values else default

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def names(self) -> list[str]:
        return list(self._values)

    def flag(self, name: str) -> bool:
        """Every value but `0` and `false` is true, even none at all: `?watch`."""
        values = self._values.get(name)
        return values is not None and values[0].lower() not in _FALSE

    def number(self, name: str) -> int:
        """An integer, parsed as by Go's ParseInt; 0 if it is missing, 400 if it is not a number."""
        text = self.get(name)
        if not text:
            return 0
        digits = text[1:] if text[0] in "+-" else text
        if not (digits.isascii() and digits.isdigit()):
            raise errors.bad_request(f"strconv.ParseInt: parsing {_quoted(text)}: invalid syntax")
        # Leading zeros are allowed, and int() rejects thousands of digits.
        if len(digits.lstrip("0")) > 19 or not -(2**63) <= int(text) < 2**63:
            raise errors.bad_request(f"strconv.ParseInt: parsing {_quoted(text)}: value out of range")
        return int(text)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __bool__(self) -> bool:
        return bool(self._values)


@lru_cache(maxsize=1024)
def _pairs(text: str) -> list[tuple[str, str]]:
    """Cached: most requests have the same few queries, such as `fieldManager=kubectl`."""
    if ";" in text or _BAD_ESCAPE.search(text):  # a Go server drops such pairs
        text = "&".join(pair for pair in text.split("&") if ";" not in pair and not _BAD_ESCAPE.search(pair))
    return parse_qsl(text, keep_blank_values=True)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
_FALSE = frozenset(("0", "false"))


@dataclass(slots=True)
class ReceivedRequest:
    """What a proxy passes on of a request as it was received."""

    target: str  # path and query with their escapes
    remote: str  # the client's address
    body_stream: AsyncIterator[bytes] | None = None  # a body that is not read yet
    # A pod may never answer: such a request is cancelled when its client is gone.
    ends_with_client: bool = False


@dataclass(slots=True)
class Request:
    method: str
    path: str
    query: Query
    headers: Mapping[str, str]  # case-insensitive
    body: bytes
    user: User
    # The transport's own request, for streams that upgrade the connection; None for in-process clients.
    incoming: Any = None
    # From a client in this process, which receives watch events as objects instead of bytes.
    in_process: bool = False
    # Of requests that may be for a proxy; the router adds it to those of in-process clients.
    received: ReceivedRequest | None = None
