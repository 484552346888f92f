"""What people and other programs ask the coordinator over HTTP: status, events, metrics, the ledger; scale and stop.

A few lines of HTTP/1.1 on the workers' port, because the runtime uses the standard library only. One request per
connection. Reading is open to whoever can reach the port; changing anything needs the job's token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from torchyard.elastic.bundle import bundle
from torchyard.elastic.errors import ElasticError

if TYPE_CHECKING:
    from torchyard.elastic.coordinator.server import Coordinator

LARGEST_BODY = 1 << 16


class _Problem(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def answer(
    coordinator: Coordinator, begun: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    status, kind, body = 200, "application/json", b""
    try:
        async with asyncio.timeout(10):
            method, target, headers, sent = await _read(begun, reader)
        kind, body = await _route(coordinator, f"{method} {target.path}", parse_qs(target.query), (headers, sent))
    except _Problem as problem:
        status, body = problem.status, json.dumps({"error": str(problem)}).encode()
    except ElasticError as error:
        status, body = 422, json.dumps({"error": error.message, "hint": error.hint}).encode()
    except (ValueError, TimeoutError) as error:
        status, body = 400, json.dumps({"error": f"cannot read this request: {error}"}).encode()
    head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: {kind}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


async def _read(begun: bytes, reader: asyncio.StreamReader) -> tuple[str, Any, dict[str, str], bytes]:
    raw = begun + await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {key.lower().strip(): value.strip() for key, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    if length > LARGEST_BODY:
        raise _Problem(413, "the body is too large")
    return method, urlsplit(target), headers, await reader.readexactly(length)


async def _route(
    coordinator: Coordinator, what: str, query: dict[str, list[str]], request: tuple[dict[str, str], bytes]
) -> tuple[str, bytes]:
    match what:
        case "GET /healthz":
            return "text/plain", b"ok\n"
        case "GET /" | "GET /status":
            return _json(status(coordinator))
        case "GET /events":
            after = int(query.get("after", ["0"])[0])
            return _json([event for event in coordinator.scribe.events if event["id"] > after])
        case "GET /runtime.zip":
            return "application/zip", bundle()
        case "GET /metrics":
            return "text/plain; version=0.0.4", metrics(coordinator).encode()
        case "GET /ledger":
            start, stop = (int(query.get(name, [default])[0]) for name, default in (("start", "1"), ("stop", "1000")))
            rows = await asyncio.wrap_future(
                coordinator.scribe.submit(lambda: list(coordinator.ledger.rows(start, stop)))
            )
            return _json([row._asdict() for row in rows])
        case "POST /scale":
            coordinator.scale(_wanted(_authorised(coordinator, request)))
            return _json({"workers": coordinator.fleet.limits.want})
        case "POST /stop":
            _authorised(coordinator, request)
            coordinator.fail("stopped by request")
            return _json({})
    raise _Problem(404, f"there is no {what}")


def _authorised(coordinator: Coordinator, request: tuple[dict[str, str], bytes]) -> Any:
    headers, body = request
    given = headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), coordinator.settings.token.encode()):
        raise _Problem(403, "this needs the job's token as a bearer token")
    return json.loads(body or b"{}")


def _wanted(told: Any) -> int:
    workers = told.get("workers") if isinstance(told, dict) else None
    if not isinstance(workers, int) or isinstance(workers, bool):
        raise _Problem(400, 'the body must name a number of workers, as in {"workers": 3}')
    return workers


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def status(coordinator: Coordinator) -> dict[str, Any]:
    fleet, order = coordinator.fleet, coordinator.ledger.order
    phase = "Waiting" if not fleet.started else "Forming" if fleet.forming else "Running"
    if coordinator.outcome is not None:
        phase = coordinator.outcome.why.capitalize()
    return {
        "job": coordinator.settings.job,
        "phase": phase,
        "message": coordinator.outcome.message if coordinator.outcome else "",
        "step": fleet.step,
        "steps": order.steps if order else None,
        "epoch": order.span(min(max(fleet.step, 1), order.steps)).epoch if order else None,
        "incarnation": coordinator.ledger.incarnation,
        "generation": fleet.fence.generation,
        "world": list(fleet.world),
        "limits": {"min": fleet.limits.least, "max": fleet.limits.most, "want": fleet.limits.want},
        "config": coordinator.config,
        "workers": {
            name: {"node": peer.hello.node, "pid": peer.hello.pid, "step": peer.step, "phase": peer.phase}
            for name, peer in sorted(coordinator.workers.items())
        },
        "up_seconds": round(time.time() - coordinator.begun, 3),
    }


def metrics(coordinator: Coordinator) -> str:
    fleet, scribe = coordinator.fleet, coordinator.scribe
    commits = sorted(scribe.commits)
    recoveries = [entry["total_ms"] / 1000 for entry in coordinator.recoveries if "total_ms" in entry]
    values: list[tuple[str, str, str, float]] = [
        ("step", "gauge", "last applied step", fleet.step),
        ("world_size", "gauge", "workers in the world", len(fleet.world)),
        ("workers_connected", "gauge", "workers with a control stream", len(coordinator.workers)),
        ("workers_wanted", "gauge", "workers asked for", fleet.limits.want),
        ("incarnation", "gauge", "how often the coordinator was started", coordinator.ledger.incarnation),
        ("generation", "gauge", "number of the present world", fleet.fence.generation),
        ("world_changes_total", "counter", "worlds begun by this incarnation", coordinator.changes),
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
