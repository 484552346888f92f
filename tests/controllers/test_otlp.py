"""What a collector may answer, and what becomes of the trace."""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torchyard.controllers import job_traces
from torchyard.controllers.job_traces import JobTraceExporter
from torchyard.controllers.otlp import ExportError, OtlpSettings, post
from torchyard.kube.client import Client

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def collector(*answers: bytes, drips: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """Sends each answer to one request, and the last one to all others. `drips`: one byte at a time, for ever."""
    requests: list[bytes] = []
    is_over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline() or b"\r\n\r\n"
            requests.append(head.partition(b"\r\n")[0])
            self.wfile.write(answers[min(len(requests), len(answers)) - 1])
            while drips and not is_over.wait(0.02):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", requests
        is_over.set()
        server.shutdown()


async def send(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_traces, "_RETRY_SECONDS", 0.0)
    await JobTraceExporter(Client.__new__(Client), OtlpSettings(endpoint, {}))._send({})


@pytest.mark.parametrize("status", ["429 Too Many", "502 Bad Gateway", "503 Unavailable", "504 Timeout"])
async def test_a_collector_that_is_busy_gets_the_trace_later(
    status: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(answer(status), answer(status, b"", "Retry-After: 0"), OK) as (endpoint, requests):
        await send(endpoint, monkeypatch)
    assert len(requests) == 3 and caplog.text == ""


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "404 Not Found", "413 Large", "500 Error"])
async def test_a_collector_that_refuses_a_trace_gets_it_once(
    status: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(answer(status)) as (endpoint, requests):
        await send(endpoint, monkeypatch)
    assert len(requests) == 1
    assert f"trace not exported: endpoint={endpoint}" in caplog.text and status[:3] in caplog.text


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect"])
async def test_a_redirect_is_an_error_and_not_followed(
    status: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Followed, a POST becomes a GET without the trace, and the headers with their keys reach another server."""
    with collector(OK) as (other, others), collector(answer(status, b"", f"Location: {other}")) as (endpoint, _):
        await send(endpoint, monkeypatch)
    assert others == [] and f"redirected to {other}" in caplog.text


async def test_a_collector_that_is_gone_is_asked_three_times(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(b"\x00\x00 this is no HTTP\r\n") as (endpoint, requests):
        await send(endpoint, monkeypatch)
    assert len(requests) == 3
    await send(endpoint, monkeypatch)  # it does not listen any more
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.WARNING]


def test_an_answer_that_never_ends_is_not_waited_for() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    with collector(head, drips=True) as (endpoint, requests):
        assert post(OtlpSettings(endpoint, {}, timeout=0.3), b"{}") == ""
    assert len(requests) == 1


@pytest.mark.parametrize("drips", [True, False])
def test_a_trace_is_not_sent_again_if_the_answer_breaks_after_a_success(drips: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length of a chunk\r\n"
    with collector(head, drips=drips) as (endpoint, requests):
        assert post(OtlpSettings(endpoint, {}), b"{}") == ""
    assert len(requests) == 1


def test_the_wait_that_a_collector_asks_for_is_bounded() -> None:
    for value, seconds in (("7", 7.0), ("99999999999", 30.0), ("-1", None), ("Thu, 01 Jan 2026 12:00:00 GMT", None)):
        busy = answer("503 Unavailable", b"", f"Retry-After: {value}")
        with collector(busy) as (endpoint, _), pytest.raises(ExportError) as raised:
            post(OtlpSettings(endpoint, {}), b"{}")
        assert raised.value.retry_after == seconds and not raised.value.is_final


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}}', "3 spans rejected: too old"),
        (b'{"partialSuccess": {"rejectedSpans": 0, "errorMessage": "use gzip"}}', "use gzip"),
        (b'{"partialSuccess": {}}', ""),
        (b"{}", ""),
        (b"[1]", ""),
        (b"\x0a\x00", ""),
        (b'{"partialSuccess": "x"}', ""),
    ],
)
def test_spans_that_are_rejected_with_a_success_are_named(body: bytes, expected: str) -> None:
    with collector(answer("200 OK", body)) as (endpoint, _):
        assert post(OtlpSettings(endpoint, {}), b"{}") == expected
