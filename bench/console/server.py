"""A server of the built pages whose cluster has any number of jobs, and replicas that log at any rate."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STATIC = Path(__file__).parents[2] / "src/torchyard/console/static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
CREATED = "2026-01-01T00:00:00Z"


class ConsoleServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, jobs: int, ranks: int, lines_per_second: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ranks, self.lines_per_second = ranks, lines_per_second
        self.jobs = [_job(index) for index in range(jobs)]
        self.streams: dict[str, _Stream] = {}
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/console/"

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path.endswith("/session"):
            return {"user": "bench", "groups": [], "context": "bench", "plane": True, "version": "0"}
        if path.endswith("/batch/v1/jobs"):
            start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
            following = start + limit
            more = {"continue": str(following)} if following < len(self.jobs) else {}
            return {"metadata": {"resourceVersion": "1", **more}, "items": self.jobs[start:following]}
        items: list[Any] = []
        if path.endswith("/namespaces/default/jobs"):
            items = [_job(0)]
        elif path.endswith("/namespaces/default/pods"):
            items = [_pod(rank) for rank in range(self.ranks)]
        return {"metadata": {"resourceVersion": "1"}, "items": items}


class _Stream:
    """The lines of all logs of one response."""

    def __init__(self) -> None:
        self.logs: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: ConsoleServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        name = parts.path.removeprefix("/console/") or "index.html"
        if (STATIC / name).is_file():
            self._send((STATIC / name).read_bytes(), TYPES.get(Path(name).suffix, "application/octet-stream"))
        elif "/samples/" in parts.path or "/history" in parts.path or "metrics.k8s.io" in parts.path:
            self._send(b"{}", "application/json", 404)
        else:
            self._send(json.dumps(self.server.answer(parts.path, parse_qs(parts.query))).encode(), "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if "/streams" not in self.path:
            self._send(b'{"status": {"allowed": true}}', "application/json")
            return
        identity = self.path.partition("/streams/")[2]
        stream = self.server.streams.setdefault(identity or str(len(self.server.streams) + 1), _Stream())
        stream.logs += [opening["id"] for opening in body.get("open", []) if "/log?" in opening["path"]]
        if identity:
            self._send(b"", "text/plain", 204)
        else:
            self._stream(str(len(self.server.streams)), stream)

    def _stream(self, identity: str, stream: _Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        step = 0
        try:
            self._chunk(json.dumps({"stream": identity}) + "\n")
            while not self.server.ended.wait(0.05):
                count = max(1, self.server.lines_per_second // 20)
                for log in stream.logs if self.server.lines_per_second else ():
                    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                    text = "".join(f"{now} step={step + n} loss={1 / (step + n + 1):.5f}\n" for n in range(count))
                    self._chunk(json.dumps({"id": log, "text": text}) + "\n")
                step += count
        except OSError:
            self.close_connection = True  # the page was closed

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, body: bytes, content_type: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "default",
        "uid": name,
        "creationTimestamp": CREATED,
        "labels": {"team": name[-1]},
    }


def _job(index: int) -> dict[str, Any]:
    spec = {"parallelism": 8, "selector": {"matchLabels": {"job-name": f"job-{index}"}}}
    return {
        "metadata": _metadata(f"job-{index}"),
        "spec": spec,
        "status": {"active": 8, "ready": 8, "startTime": CREATED},
    }


def _pod(rank: int) -> dict[str, Any]:
    metadata = _metadata(f"job-0-{rank}")
    metadata["ownerReferences"] = [{"kind": "Job", "name": "job-0", "uid": "job-0", "controller": True}]
    status = {
        "phase": "Running",
        "startTime": CREATED,
        "containerStatuses": [{"name": "main", "state": {"running": {}}}],
    }
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}


def serve(server: ConsoleServer) -> threading.Thread:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return thread
