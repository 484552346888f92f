"""One machine, no plane: a coordinator process, an agent, and a directory that holds everything a job must not lose.

The runner keeps the listening socket, so a coordinator that dies is replaced behind the same port: workers that
reconnect meanwhile wait in its backlog.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.agent.agent import AgentConfig, ElasticAgent, default_say
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import Coordinator, CoordinatorConfig
from torchyard.elastic.errors import ElasticError

RECORD = "job.json"


@dataclass(frozen=True, slots=True)
class RunOptions:
    command: tuple[str, ...]
    directory: Path
    workers: int = 1
    least: int = 1
    most: int | None = None
    multiple_of: int = 1
    job: str = ""
    lease: float = 1.0
    hang_after: float = 300.0
    zygote: bool = True
    quiet: bool = False

    def limits(self) -> WorldLimits:
        most = self.most if self.most is not None else max(self.workers, self.least)
        if not 1 <= self.least <= self.workers <= most:
            raise ElasticError(
                "BadLimits",
                f"min {self.least}, n {self.workers}, max {most} are not in order",
                hint="choose 1 <= --min <= -n <= --max",
            )
        if self.multiple_of < 1 or self.workers % self.multiple_of:
            near = max(1, self.workers // max(1, self.multiple_of)) * max(1, self.multiple_of)
            raise ElasticError(
                "BadLimits",
                f"{self.workers} workers is not a multiple of {self.multiple_of}",
                hint=f"use -n {near} or another --multiple-of",
            )
        return WorldLimits(self.least, most, self.multiple_of, self.workers)


def read_record(directory: Path) -> dict[str, Any]:
    path = directory / RECORD
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ElasticError("NoJob", f"there is no job in {directory}", hint="give its --dir") from error
    except ValueError as error:
        raise ElasticError("BadRecord", f"{path} cannot be read: {error}", hint="choose another --dir") from error
    return record


def write_record(directory: Path, record: dict[str, Any]) -> None:
    """The token is in it: only the owner may read it."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{RECORD}.new"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(record, file, indent=1)
    temporary.replace(directory / RECORD)


class LocalRunner:
    def __init__(self, options: RunOptions, *, say: Callable[[str], None] | None = None) -> None:
        self.options = options
        self._limits = options.limits()
        self._say = say or ((lambda text: None) if options.quiet else default_say)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self._listener.getsockname()[1])
        self._record = self._prepare()
        self._coordinator: asyncio.subprocess.Process | None = None
        self.agent: ElasticAgent | None = None

    def _prepare(self) -> dict[str, Any]:
        directory = self.options.directory
        held = read_record(directory) if (directory / RECORD).exists() else {}
        record = {
            "job": self.options.job or held.get("job") or directory.resolve().name,
            "token": held.get("token") or secrets.token_urlsafe(24),
            "address": f"127.0.0.1:{self.port}",
            "workers": held.get("workers", self.options.workers),
            "next_worker": held.get("next_worker", 0),
            "lease": self.options.lease,
            "hang_after": self.options.hang_after,
            "limits": asdict(self._limits),
            "runner": os.getpid(),
        }
        write_record(directory, record)
        return record

    async def run(self) -> wire.Stop:
        record, options = self._record, self.options
        post = AgentConfig(
            ("127.0.0.1", self.port),
            record["job"],
            record["token"],
            "local",
            options.command,
            options.directory,
            workers=record["workers"],
            first_number=record["next_worker"],
            zygote=options.zygote,
        )
        agent = self.agent = ElasticAgent(post, say=self._say)
        supervising = asyncio.create_task(self._supervise(agent))
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._interrupted, agent)
        try:
            return await agent.run()
        finally:
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)
            await self._stop_coordinator()
            write_record(options.directory, record | {"next_worker": agent.next_number, "address": "", "runner": 0})
            self._listener.close()

    def _interrupted(self, agent: ElasticAgent) -> None:
        agent.end(wire.Stop("failed", "interrupted; run the same command again to go on"))

    async def _supervise(self, agent: ElasticAgent) -> None:
        """Keep a coordinator behind the port; give up on one that cannot even start."""
        quick = 0
        while True:
            begun = time.monotonic()
            self._coordinator = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "torchyard.elastic",
                "coordinator",
                "--dir",
                str(self.options.directory),
                "--listener",
                str(self._listener.fileno()),
                "--with-parent",  # the runner holds the port: without it, it would wait for nobody
                pass_fds=[self._listener.fileno()],
                start_new_session=True,
            )
            code = await self._coordinator.wait()
            if agent.stop is not None or code == 0:
                return
            quick = quick + 1 if code > 0 and time.monotonic() - begun < 2 else 0
            if code == 2 or quick == 3:
                agent.end(wire.Stop("failed", "the coordinator could not start; its message is above"))
                return

    @property
    def coordinator_pid(self) -> int | None:
        process = self._coordinator
        return process.pid if process is not None and process.returncode is None else None

    async def _stop_coordinator(self) -> None:
        process = self._coordinator
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()


async def serve_coordinator(directory: Path, listener: socket.socket | None, *, host: str, port: int) -> wire.Stop:
    """The coordinator process: serves until the job is over and its workers have heard so."""
    record = read_record(directory)
    limits = WorldLimits(**record["limits"])
    settings = CoordinatorConfig(
        record["job"],
        record["token"],
        directory / "ledger.db",
        host=host,
        port=port,
        listener=listener,
        limits=limits,
        lease=record["lease"],
        hang_after=record["hang_after"],
    )
    coordinator = Coordinator(settings)
    await coordinator.start()
    ended = asyncio.create_task(coordinator.finished())
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        # Late workers must still hear the news; the runner ends this process when they have.
        with suppress(TimeoutError):
            async with asyncio.timeout(15):
                await told.wait()
    outcome = coordinator.outcome or wire.Stop("retired", "told to stop")
    ended.cancel()
    waiting.cancel()
    await coordinator.close()
    return outcome


def run(options: RunOptions, *, say: Callable[[str], None] | None = None) -> int:
    """Train with `options.command` until done. The exit code of `yard elastic run`."""
    if not options.command:
        raise ElasticError("NoCommand", "nothing to run", hint="put the program after --, as in: -- python train.py")
    stop = asyncio.run(LocalRunner(options, say=say).run())
    if stop.why == "finished":
        sys.stderr.write(f"finished: {stop.message}\n")
        return 0
    sys.stderr.write(f"{stop.why}: {stop.message}\n")
    return 1


def sequence(command: Sequence[str]) -> tuple[str, ...]:
    return tuple(command[1:] if command and command[0] == "--" else command)
