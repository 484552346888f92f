"""An HTTP response without its transport: a whole body, a stream of bytes, or watch events as objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import orjson

from torchyard.api.errors import PageNotFound, StatusError
from torchyard.apiserver.request.warnings import limited_warnings

JSON, TEXT = "application/json", "text/plain; charset=utf-8"


class StreamAborted(Exception):
    """The source of a streamed body has ended before the body: the client's connection is closed."""


@dataclass(slots=True)
class ProxiedHead:
    """The head of a response that a proxy passes on."""

    headers: list[tuple[str, str]]  # all but those of the connection
    length: int | None = None  # of a body in chunks


@dataclass(slots=True)
class Response:
    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""  # whole, or in chunks
    content_type: str = JSON
    is_raw: bool = False  # the body is not a serialized object: it ends without a newline
    events: AsyncGenerator[list[dict[str, Any]], None] | None = None  # replaces the body for in-process clients
    headers: dict[str, str] = field(default_factory=dict)
    proxied: ProxiedHead | None = None  # replaces content type and headers
    warnings: list[str] = field(default_factory=list)
    # The transport's own response of a request that upgraded its connection.
    upgraded: Any = None


def error_response(error: StatusError, *, is_indented: bool = False, is_yaml: bool = False) -> Response:
    """The Status of an error. As upstream, a client that does not accept plain objects gets it indented."""
    if isinstance(error, PageNotFound):
        return Response(error.status, error.text, TEXT)
    warnings = limited_warnings(error.warnings)
    if is_yaml:
        import yaml

        text = yaml.safe_dump(error.body()).encode()
        return Response(
            error.status, text, "application/yaml", is_raw=True, headers=dict(error.headers), warnings=warnings
        )
    body = orjson.dumps(error.body(), option=orjson.OPT_INDENT_2 if is_indented else None)
    return Response(error.status, body, JSON, is_raw=is_indented, headers=dict(error.headers), warnings=warnings)
