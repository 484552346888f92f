"""How JSON bodies are laid out: on one line with a newline at its end, or indented for people who read them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from torchyard.apiserver.request.computation import compute
from torchyard.apiserver.request.request import Query
from torchyard.apiserver.request.response import JSON, Response

NEWLINE = b"\n"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # Go's ParseBool
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")


def is_for_people(headers: Mapping[str, str]) -> bool:
    """Whether JSON is indented unless the query says otherwise: for a browser, curl or wget, or as `Accept` says."""
    if headers.get("User-Agent", "").startswith(_READ_BY_PEOPLE):
        return True
    first = headers.get("Accept", "").partition(",")[0]
    return any(parameter.strip() in _INDENTED for parameter in first.split(";")[1:])


_INDENTED = frozenset(f"pretty={text}" for text in _TRUE)


def is_indented(headers: Mapping[str, str], query: str) -> bool:
    value = Query(query).get("pretty") if "pretty" in query else ""
    return value in _TRUE if value else is_for_people(headers)


async def lay_out(response: Response, headers: Mapping[str, str], query: str) -> tuple[bytes, bytes]:
    """A whole body as it is sent, and what follows it: a large body is not copied for a newline."""
    body = response.body
    assert isinstance(body, bytes)
    if not body or response.is_raw or not response.content_type.startswith(JSON):
        return body, b""
    if is_indented(headers, query):
        return await compute(len(body), _indent, body), b""
    return body, NEWLINE


def _indent(body: bytes) -> bytes:
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
