"""Workers forked from one zygote, and a coordinator in a thread: a job of real processes in less than a second."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard.elastic.agent.fork_messages import ForkRequest
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import CoordinatorServer

TOKEN = "t" * 24


class ForkServer:
    """A process that has imported torch and forks programs."""

    def __init__(self) -> None:
        self._channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(120)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "torchyard.elastic.agent.zygote", str(end.fileno())], pass_fds=[end.fileno()]
            )
        self._receive("ready")
        self.exits: dict[int, int] = {}

    def _receive(self, kind: str) -> dict[str, Any]:
        while True:
            reply: dict[str, Any] = json.loads(self._channel.recv(1 << 16))
            if reply["type"] == "exited":
                self.exits[reply["pid"]] = reply["code"]
            if reply["type"] == kind:
                return reply

    def fork(self, argv: list[str], environment: dict[str, str], output: Path) -> int:
        request: ForkRequest = {
            "name": "",
            "argv": argv,
            "env": {**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            "cwd": str(Path.cwd()),
            "path": [],
        }
        with output.open("ab") as file:
            socket.send_fds(self._channel, [json.dumps(request).encode()], [file.fileno(), file.fileno()])
        pid = int(self._receive("forked")["pid"])
        self.exits.pop(pid, None)  # of an earlier process that had the same number
        return pid

    def wait(self, pid: int) -> int:
        while pid not in self.exits:
            self._receive("exited")
        return self.exits[pid]

    def close(self) -> None:
        self._channel.close()
        self._process.wait(60)


class SmallJob:
    """One job: its coordinator and its workers."""

    def __init__(  # what decides how a job runs
        self,
        server: ForkServer,
        argv: list[str],
        folder: Path,
        *,
        workers: int,
        lease: float = 30.0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._server, self._argv, self._folder = server, argv, folder
        self._environment = environment or {}
        self.output = folder / "output"
        limits = WorldLimits(1, 8, 1, workers)
        self._config = CoordinatorConfig("job", TOKEN, folder / "ledger.db", limits=limits, lease=lease)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._start(self._config))
        self.pids: dict[str, int] = {}
        for _ in range(workers):
            self.add_worker()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self, config: CoordinatorConfig) -> None:
        self.server = CoordinatorServer(config)
        self.port = await self.server.start()

    def restart_coordinator(self) -> None:
        """Replace the coordinator by one with the same port and ledger. It knows nothing but what the ledger has."""
        self._call(self.server.close())
        self._call(self._start(replace(self._config, port=self.port)))

    def stall_coordinator(self, seconds: float) -> None:
        """Keep the coordinator from doing anything for a time, as SIGSTOP does; its port still accepts connections."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    def scale(self, workers: int) -> None:
        async def scale() -> None:
            if self.server.coordinator.outcome is None:
                self.server.coordinator.scale(workers)

        self._call(scale())

    def wait_for_end(self, seconds: float = 200.0) -> None:
        """Wait until the job has ended; replace workers if all are gone."""
        deadline = time.monotonic() + seconds
        while self.server.coordinator.outcome is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job did not end; {self.output.read_text()[-3000:]}")
            time.sleep(0.02)

    def add_worker(self) -> str:
        name = f"worker-{len(self.pids)}"
        environment = {
            "TORCHYARD_ELASTIC_COORDINATOR": f"127.0.0.1:{self.port}",
            "TORCHYARD_ELASTIC_JOB": "job",
            "TORCHYARD_ELASTIC_TOKEN": TOKEN,
            "TORCHYARD_ELASTIC_WORKER": name,
            "TORCHYARD_ELASTIC_MEMORY": str(self._folder / "memory"),
            "ZOO_HOLD": str(self._folder / "go"),
            **self._environment,
        }
        self.pids[name] = self._server.fork(self._argv, environment, self.output)
        return name

    def kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids[name], signal.SIGKILL)

    def release(self) -> None:
        (self._folder / "go").touch()

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.server.coordinator.outcome is not None:
                raise TimeoutError(f"{self.server.coordinator.outcome}; {self.output.read_text()[-3000:]}")
            time.sleep(0.005)

    def wait_for_world(self, size: int, *, step: int, member: str | None = None) -> None:
        """Wait until a world of this size, with this member, has reached a step."""

        def reached() -> bool:
            membership = self.server.coordinator.membership
            complete = membership.running and len(membership.world) == size
            return complete and membership.step >= step and (member is None or member in membership.world)

        self.wait_until(reached)

    def finish(self) -> str:
        """Wait for the end, and return the output of all workers."""
        self.release()
        try:
            for pid in self.pids.values():
                self._server.wait(pid)
            outcome = self.server.coordinator.outcome
        finally:
            self.close()
        text = self.output.read_text()
        assert outcome is not None, text
        assert outcome.cause == "finished", (outcome, text)
        return text

    def close(self) -> None:
        """End all processes and the coordinator; a second call does nothing."""
        if self._loop.is_closed():
            return
        for name in self.pids:
            if self.pids[name] not in self._server.exits:
                self.kill(name)
        self._call(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
