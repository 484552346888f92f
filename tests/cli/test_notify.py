"""`yard run --notify`: a webhook or a command learns how a job ended."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_jobs import batch_job, call
from tests.cli.test_run import manifest
from tests.support.yard import Yard

from torchyard.cli import notify as notifications
from torchyard.cli.notify import notify


async def test_a_command_gets_variables(tmp_path: Path) -> None:
    command = f'echo "$YARD_JOB $YARD_STATE $YARD_EXIT_CODE $YARD_MESSAGE" > {tmp_path}/out'
    assert await notify(command, "mnist", "Failed", 3, "why; $HOME") == ""
    assert (tmp_path / "out").read_text() == "mnist Failed 3 why; $HOME\n"
    assert await notify("exit 4", "mnist", "Failed", 3, "") == "exit code 4"


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "SECONDS", 0.2)
    assert "did not end" in await notify("exec sleep 600", "mnist", "Failed", 3, "")


async def test_a_webhook_gets_json() -> None:
    bodies: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert await notify(f"http://127.0.0.1:{server.server_port}/", "mnist", "Succeeded", 0, "done") == ""
        finally:
            server.shutdown()
    assert bodies == [{"job": "mnist", "state": "Succeeded", "exitCode": 0, "message": "done"}]
    assert await notify(f"http://127.0.0.1:{server.server_port}/", "mnist", "Succeeded", 0, "done") != ""


async def test_a_webhook_that_does_not_speak_http_is_reported() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await notify(f"http://127.0.0.1:{port}/", "mnist", "Succeeded", 0, "done") != ""
    server.close()


def test_a_run_notifies_at_its_end(plane: Yard, tmp_path: Path) -> None:
    job = manifest(tmp_path, batch_job("notified", "exit 3"))
    code, output = call(plane, "run", job, "--notify", f"echo $YARD_STATE $YARD_EXIT_CODE > {tmp_path}/out")
    assert code == 3, output
    assert (tmp_path / "out").read_text() == "Failed 3\n"
    assert "code: BadOption" in call(plane, "run", job, "--notify", "true", "--detach")[1]
