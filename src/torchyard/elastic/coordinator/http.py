"""The coordinator's HTTP interface: status, events, metrics and the ledger; scale and stop.

It implements a small part of HTTP/1.1, because the runtime uses the standard library only. A connection serves one
request. Every path but `/healthz` and `/metrics` needs the job's token, which is checked before anything but the head
is read. `/metrics` needs none, as that of most programs, because Prometheus cannot know the token of every job: it
shows how many workers and steps there are, and nothing of the program.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchyard.elastic.bundle import bundle
from torchyard.elastic.coordinator.admission import is_token
from torchyard.elastic.coordinator.coordinator import Coordinator
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.wire_fields import MAX_INT

LARGEST_BODY = 1 << 16
LARGEST_PAGE = 10_000
"""The maximum number of rows in a response of `/ledger`."""
SECONDS = 30.0
"""The time for reading the body of a request, and for sending its response."""
_ROUTES = {
    "/": ("GET", ()),
    "/status": ("GET", ()),
    "/events": ("GET", ("after",)),
    "/runtime.zip": ("GET", ()),
    "/metrics": ("GET", ()),
    "/ledger": ("GET", ("start", "stop")),
    "/scale": ("POST", ()),
    "/stop": ("POST", ()),
}
"""The method and the parameters of each path."""
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {408: "Request Timeout", 413: "Content Too Large", 422: "Unprocessable Content"}
_REASONS |= {431: "Request Header Fields Too Large", 501: "Not Implemented"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of a request."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


class _HttpError(Exception):
    """A request that cannot be served, and the status code that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def authenticate(
    token: str, prefix: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> HttpRequest | None:
    """Read the head of a request, of which `prefix` has been read already.

    Returns:
        the request if it has the job's token or needs none; None if it has been answered.
    """
    try:
        request = await _read_head(prefix, reader)
        if (request.method, request.path) == ("GET", "/healthz"):
            await _send(writer, 200, "text/plain", b"ok\n")
            return None
        if (request.method, request.path) == ("GET", "/metrics"):
            return HttpRequest(request.method, request.path, request.query, {})  # without a body
        if not is_token(_bearer_token(request), token):
            raise _HttpError(403, "the bearer token is missing or wrong; use the token of the job")
    except _HttpError as error:
        await _send_error(writer, error)
        return None
    return request


def _bearer_token(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def respond(
    coordinator: Coordinator, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve an authenticated request."""
    try:
        async with asyncio.timeout(SECONDS):
            body = await _read_body(request, reader)
        content_type, response = await _route(coordinator, request, body)
    except _HttpError as error:
        await _send_error(writer, error)
    except ElasticError as error:
        await _send(writer, 422, *_json({"error": error.message, "hint": error.hint}))
    except TimeoutError:
        await _send_error(writer, _HttpError(408, "the body did not arrive in time"))
    else:
        await _send(writer, 200, content_type, response)


async def _send(writer: asyncio.StreamWriter, status: int, content_type: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    async with asyncio.timeout(SECONDS):
        await writer.drain()


async def _send_error(writer: asyncio.StreamWriter, error: _HttpError) -> None:
    await _send(writer, error.status, *_json({"error": str(error)}))


async def _read_head(prefix: bytes, reader: asyncio.StreamReader) -> HttpRequest:
    try:
        raw = prefix + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _HttpError(431, "the head of the request is too large") from error
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        key, colon, value = line.partition(":")
        name = key.lower()
        if not colon or name != name.strip() or (name in headers and name in ("authorization", "content-length")):
            raise _HttpError(400, "the head of the request is not valid")
        headers[name] = value.strip()
    try:
        method, target, version = first.split(" ")
        url = urlsplit(target)
    except ValueError as error:
        raise _HttpError(400, "the request line is not valid") from error
    if not version.startswith("HTTP/1."):
        raise _HttpError(400, "only HTTP/1.0 and HTTP/1.1 are supported")
    return HttpRequest(method, url.path, url.query, headers)


async def _read_body(request: HttpRequest, reader: asyncio.StreamReader) -> bytes:
    if "transfer-encoding" in request.headers:
        raise _HttpError(501, "a body needs a Content-Length")
    length = _parse_number("Content-Length", request.headers.get("content-length", "0"))
    if length > LARGEST_BODY:
        raise _HttpError(413, f"the body has {length} bytes, more than {LARGEST_BODY}")
    return await reader.readexactly(length)


def _parse_number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_INT:
        raise _HttpError(400, f"{name} is {text[:40]!r}, but must be a number from 0 to {MAX_INT}")
    return int(text)


def _parameters(request: HttpRequest, known: tuple[str, ...]) -> dict[str, int]:
    """Return the parameters of a request, which are all numbers."""
    try:
        query = parse_qs(request.query, keep_blank_values=True, strict_parsing=bool(request.query), max_num_fields=10)
    except ValueError as error:
        raise _HttpError(400, "the query is not valid") from error
    for name, values in query.items():
        if name not in known:
            raise _HttpError(400, f"{name[:40]!r} is not a parameter of {request.path}")
        if len(values) > 1:
            raise _HttpError(400, f"{name} occurs {len(values)} times")
    return {name: _parse_number(name, values[0]) for name, values in query.items()}


async def _route(coordinator: Coordinator, request: HttpRequest, body: bytes) -> tuple[str, bytes]:
    if request.path not in _ROUTES:
        raise _HttpError(404, f"there is no path {request.path[:100]!r}")
    method, known = _ROUTES[request.path]
    if request.method != method:
        raise _HttpError(405, f"{request.path} needs {method}, not {request.method[:20]}")
    parameters = _parameters(request, known)
    match request.path:
        case "/events":
            after = parameters.get("after", 0)
            return _json([event for event in coordinator.ledger_writer.events if event["id"] > after])
        case "/runtime.zip":
            return "application/zip", bundle()
        case "/metrics":
            return "text/plain; version=0.0.4", metrics(coordinator).encode()
        case "/ledger":
            return await _ledger(coordinator, parameters.get("start", 1), parameters.get("stop", 1000))
        case "/scale":
            coordinator.scale(_requested_workers(body))
            return _json({"workers": coordinator.membership.limits.target_workers})
        case "/stop":
            coordinator.fail("stopped by request")
            return _json({})
    return _json(status(coordinator))


async def _ledger(coordinator: Coordinator, start: int, stop: int) -> tuple[str, bytes]:
    def read() -> tuple[str, bytes]:
        return _json([row._asdict() for row in coordinator.ledger.rows(start, stop, limit=LARGEST_PAGE)])

    return await asyncio.wrap_future(coordinator.ledger_writer.read(read))


def _requested_workers(body: bytes) -> int:
    try:
        content = json.loads(body)
        workers = content["workers"]
    except (ValueError, TypeError, KeyError, RecursionError):
        workers = None
    if type(workers) is not int or workers.bit_length() > 32:
        raise _HttpError(400, 'the body must name a number of workers, as in {"workers": 3}')
    return workers


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def status(coordinator: Coordinator) -> dict[str, Any]:
    """Return the body of `GET /status`."""
    membership, sampler = coordinator.membership, coordinator.ledger.sampler
    phase = "Waiting" if not membership.started else "Forming" if membership.forming else "Running"
    if coordinator.outcome is not None:
        phase = coordinator.outcome.cause.capitalize()
    return {
        "job": coordinator.settings.job,
        "phase": phase,
        "message": coordinator.outcome.message if coordinator.outcome else "",
        "training": coordinator.trainings.number,
        "trainings": coordinator.trainings.count,
        "step": membership.step,
        "steps": sampler.steps if sampler else None,
        "epoch": sampler.span(min(max(membership.step, 1), sampler.steps)).epoch if sampler else None,
        "incarnation": coordinator.ledger.incarnation,
        "generation": membership.fence.generation,
        "world": list(membership.world),
        "limits": {
            "min": membership.limits.min_workers,
            "max": membership.limits.max_workers,
            "want": membership.limits.target_workers,
        },
        "config": coordinator.config,
        "workers": {
            name: {"node": peer.hello.node, "pid": peer.hello.pid, "step": peer.step, "phase": peer.phase}
            for name, peer in sorted(coordinator.workers.items())
        },
        "up_seconds": round(time.monotonic() - coordinator.started_at, 3),
    }


def metrics(coordinator: Coordinator) -> str:
    """Return the body of `GET /metrics` in Prometheus' text format."""
    membership, ledger_writer = coordinator.membership, coordinator.ledger_writer
    sampler = coordinator.ledger.sampler
    commits = sorted(ledger_writer.commits)
    recoveries = [entry["total_ms"] / 1000 for entry in coordinator.recovery_times.complete if "total_ms" in entry]
    values: list[tuple[str, str, str, float]] = [
        ("step", "gauge", "last applied step", membership.step),
        ("records", "gauge", "records of the applied steps", sampler.records_until(membership.step) if sampler else 0),
        ("world_size", "gauge", "workers in the world", len(membership.world)),
        ("workers_connected", "gauge", "workers with a control stream", len(coordinator.workers)),
        ("workers_wanted", "gauge", "target number of workers", membership.limits.target_workers),
        ("incarnation", "gauge", "how often the coordinator was started", coordinator.ledger.incarnation),
        ("generation", "gauge", "number of the present world", membership.fence.generation),
        (
            "world_changes_total",
            "counter",
            "worlds begun by this incarnation",
            coordinator.recovery_times.worlds_started,
        ),
        ("reform_seconds_sum", "counter", "time from cause to first step, summed", sum(recoveries)),
        ("reform_seconds_count", "counter", "worlds whose first step was seen", len(recoveries)),
        ("ledger_commit_seconds_p50", "gauge", "durable commit", commits[len(commits) // 2] if commits else 0),
        ("ledger_commit_seconds_p99", "gauge", "durable commit", commits[len(commits) * 99 // 100] if commits else 0),
    ]
    lines = []
    job = coordinator.settings.job.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    for name, kind, text, value in values:
        full = f"torchyard_elastic_{name}"
        label = f'job="{job}"'
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full}{{{label}}} {value}"]
    return "\n".join(lines) + "\n"
