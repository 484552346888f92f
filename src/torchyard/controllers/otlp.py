"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, as JSON.

Which answers are final, and when to try again, is as the OTLP specification says.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO
from urllib.parse import unquote, urlsplit

import orjson

from torchyard.api.errors import YardError

_PREFIX = "OTEL_EXPORTER_OTLP_"
_RETRIED = frozenset((429, 502, 503, 504))
_MAX_RETRY_AFTER = 30.0  # seconds: other traces wait meanwhile
_MAX_ANSWER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    endpoint: str  # of traces
    headers: Mapping[str, str]
    service: str = "torchyard"
    timeout: float = 10.0  # seconds
    certificate: str = ""  # a file of CA certificates; empty for the system's

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> OtlpSettings | None:
        """None without an endpoint. Raises `YardError` for a value that cannot be honoured."""
        endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
        if not endpoint and (base := environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")):
            endpoint = f"{base.rstrip('/')}/v1/traces"
        if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or not _is_enabled(environ):
            return None
        _, protocol = _value(environ, "PROTOCOL")
        if protocol not in ("", "http/json", "http/protobuf"):
            raise YardError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r} is not supported, traces are sent by HTTP",
                hint="use the collector's HTTP port, usually 4318, and http/json",
            )
        if urlsplit(endpoint).scheme not in ("http", "https"):
            raise YardError(f"OTEL_EXPORTER_OTLP_ENDPOINT: {endpoint!r} is not a URL", hint="use http://HOST:4318")
        pairs = (pair.partition("=") for pair in _value(environ, "HEADERS")[1].split(",") if pair)
        headers = {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
        service = environ.get("OTEL_SERVICE_NAME") or "torchyard"
        return cls(endpoint, headers, service, _timeout(environ), _certificate(environ))


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable for traces, or else the one for all signals: its name and its value."""
    variables = (f"{_PREFIX}TRACES_{name}", f"{_PREFIX}{name}")
    return next(((variable, environ[variable]) for variable in variables if environ.get(variable)), (variables[1], ""))


def _is_enabled(environ: Mapping[str, str]) -> bool:
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    if exporters - {"otlp", "none"}:
        raise YardError(
            f"OTEL_TRACES_EXPORTER: {environ['OTEL_TRACES_EXPORTER']!r} is not supported", hint="use otlp or none"
        )
    return exporters in (set(), {"otlp"})


def _timeout(environ: Mapping[str, str]) -> float:
    variable, text = _value(environ, "TIMEOUT")
    if not text:
        return 10.0
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not 0 < int(text) <= 3_600_000:
        raise YardError(
            f"{variable}: {text!r} is not a number of milliseconds up to an hour", hint="use for example 10000"
        )
    return int(text) / 1000


def _certificate(environ: Mapping[str, str]) -> str:
    """Loaded once here, so that a wrong file is an error of the start and not of each trace."""
    variable, path = _value(environ, "CERTIFICATE")
    if path:
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            hint = "name a file of CA certificates in PEM format"
            raise YardError(f"{variable}: {path!r} cannot be loaded: {error}", hint=hint) from error
    return path


class ExportError(Exception):
    """The collector did not take a trace. `is_final`: it would not take it later either."""

    def __init__(self, reason: str, *, is_final: bool, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.is_final, self.retry_after = is_final, retry_after


def post(settings: OtlpSettings, body: bytes) -> str:
    """Send a trace; return why the collector rejected a part of it, or an empty string. Raises `ExportError`."""
    from http.client import HTTPException, InvalidURL  # these load much that only this function needs
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class RefuseRedirects(HTTPRedirectHandler):
        """A redirected POST would become a GET without the trace, and its headers would reach another server."""

        def redirect_request(self, *_: object) -> None:
            return None

    deadline = time.monotonic() + settings.timeout
    context = ssl.create_default_context(cafile=settings.certificate) if settings.certificate else None
    try:
        headers = {**settings.headers, "Content-Type": "application/json"}
        request = Request(settings.endpoint, body, headers, method="POST")  # noqa: S310 - the scheme was checked
        opener = build_opener(RefuseRedirects, HTTPSHandler(context=context))
        with opener.open(request, timeout=settings.timeout) as response:
            answer = _read(response, deadline)
    except HTTPError as error:
        error.close()
        location = f" (redirected to {error.headers['Location']})" if "Location" in error.headers else ""
        raise ExportError(
            f"{error}{location}",
            is_final=error.code not in _RETRIED,
            retry_after=_retry_after(error.headers.get("Retry-After", "")),
        ) from error
    except (ValueError, InvalidURL) as error:  # of the URL or a header
        raise ExportError(str(error), is_final=True) from error
    except (OSError, HTTPException) as error:
        raise ExportError(str(error) or type(error).__name__, is_final=False) from error
    return _rejection(answer)


def _read(response: IO[bytes], deadline: float) -> bytes:
    """What comes in time. The status was a success: an answer that is too long, too slow or cut off is no failure."""
    from http.client import HTTPException  # as in `post`

    answer = b""
    with suppress(OSError, HTTPException):
        while len(answer) < _MAX_ANSWER_BYTES and time.monotonic() < deadline:
            chunk = response.read1(_MAX_ANSWER_BYTES)  # type: ignore[attr-defined]
            if not chunk:
                break
            answer += chunk
    return answer


def _retry_after(text: str) -> float | None:
    """Seconds; None for a date or nothing."""
    return min(float(text[:9]), _MAX_RETRY_AFTER) if text.isdecimal() and text.isascii() else None


def _rejection(answer: bytes) -> str:
    """The `partialSuccess` of a response: spans that the collector dropped although it answered 200."""
    try:
        partial = orjson.loads(answer).get("partialSuccess") or {}
        count, message = partial.get("rejectedSpans"), partial.get("errorMessage")
    except (orjson.JSONDecodeError, AttributeError):
        return ""  # protobuf or nothing
    if not count or str(count) == "0":
        return str(message or "")[:500]
    return f"{count} spans rejected: {message or 'without a reason'}"[:500]
