"""The coordinator's HTTP interface: status, events, metrics and the ledger; scale and stop.

It implements a small part of HTTP/1.1, because the runtime uses the standard library only. A connection serves one
request. Every client that can reach the port may read; a change needs the job's token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchyard.elastic.bundle import bundle
from torchyard.elastic.coordinator.coordinator import Coordinator
from torchyard.elastic.errors import ElasticError

LARGEST_BODY = 1 << 16


class _HttpError(Exception):
    """A request that cannot be served, and the status code that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def respond(
    coordinator: Coordinator, prefix: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve one request, of which `prefix` has been read already."""
    status, content_type, body = 200, "application/json", b""
    try:
        async with asyncio.timeout(10):
            method, target, headers, request_body = await _read(prefix, reader)
        route, query = f"{method} {target.path}", parse_qs(target.query)
        content_type, body = await _route(coordinator, route, query, (headers, request_body))
    except _HttpError as error:
        status, body = error.status, json.dumps({"error": str(error)}).encode()
    except ElasticError as error:
        status, body = 422, json.dumps({"error": error.message, "hint": error.hint}).encode()
    except (ValueError, TimeoutError) as error:
        status, body = 400, json.dumps({"error": f"cannot read this request: {error}"}).encode()
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


async def _read(prefix: bytes, reader: asyncio.StreamReader) -> tuple[str, Any, dict[str, str], bytes]:
    raw = prefix + await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {key.lower().strip(): value.strip() for key, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    if length > LARGEST_BODY:
        raise _HttpError(413, "the body is too large")
    return method, urlsplit(target), headers, await reader.readexactly(length)


async def _route(
    coordinator: Coordinator, route: str, query: dict[str, list[str]], request: tuple[dict[str, str], bytes]
) -> tuple[str, bytes]:
    match route:
        case "GET /healthz":
            return "text/plain", b"ok\n"
        case "GET /" | "GET /status":
            return _json(status(coordinator))
        case "GET /events":
            after = int(query.get("after", ["0"])[0])
            return _json([event for event in coordinator.ledger_writer.events if event["id"] > after])
        case "GET /runtime.zip":
            return "application/zip", bundle()
        case "GET /metrics":
            return "text/plain; version=0.0.4", metrics(coordinator).encode()
        case "GET /ledger":
            start, stop = (int(query.get(name, [default])[0]) for name, default in (("start", "1"), ("stop", "1000")))
            rows = await asyncio.wrap_future(
                coordinator.ledger_writer.submit(lambda: list(coordinator.ledger.rows(start, stop)))
            )
            return _json([row._asdict() for row in rows])
        case "POST /scale":
            coordinator.scale(_requested_workers(_authorized(coordinator, request)))
            return _json({"workers": coordinator.membership.limits.target_workers})
        case "POST /stop":
            _authorized(coordinator, request)
            coordinator.fail("stopped by request")
            return _json({})
    raise _HttpError(404, f"there is no route {route}")


def _authorized(coordinator: Coordinator, request: tuple[dict[str, str], bytes]) -> Any:
    headers, body = request
    token = headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(token.encode(), coordinator.settings.token.encode()):
        raise _HttpError(403, "the bearer token is missing or wrong; use the token of the job")
    return json.loads(body or b"{}")


def _requested_workers(body: Any) -> int:
    workers = body.get("workers") if isinstance(body, dict) else None
    if not isinstance(workers, int) or isinstance(workers, bool):
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
        "up_seconds": round(time.time() - coordinator.started_at, 3),
    }


def metrics(coordinator: Coordinator) -> str:
    """Return the body of `GET /metrics` in Prometheus' text format."""
    membership, ledger_writer = coordinator.membership, coordinator.ledger_writer
    commits = sorted(ledger_writer.commits)
    recoveries = [entry["total_ms"] / 1000 for entry in coordinator.recovery_times.complete if "total_ms" in entry]
    values: list[tuple[str, str, str, float]] = [
        ("step", "gauge", "last applied step", membership.step),
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
    for name, kind, text, value in values:
        full = f"torchyard_elastic_{name}"
        label = f'job="{coordinator.settings.job}"'
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full}{{{label}}} {value}"]
    return "\n".join(lines) + "\n"
