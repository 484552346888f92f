"""Trains on one machine without a plane: a coordinator process, an agent, and a directory with everything to keep.

The runner holds the listening socket, so a coordinator that dies is replaced behind the same port. Workers that
reconnect meanwhile wait in the socket's backlog.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchyard.elastic import wire
from torchyard.elastic.agent.agent import AgentConfig, ElasticAgent, print_line, shared_memory_dir
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import CoordinatorServer
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import RESUME_VARIABLE, RUN_VARIABLE
from torchyard.elastic.job_record import JOB_FILE, JobRecord, has_job, read_record, write_record
from torchyard.elastic.ledger import LedgerReader
from torchyard.elastic.wire import StopCause

INTERRUPTED_CODE = 130
COORDINATOR_REFUSED = 2
"""The exit code of a coordinator that cannot start with these settings."""
INTERRUPTED = "interrupted"
SILENCE = 5.0
"""Seconds after which a coordinator that does not respond is killed and replaced."""
QUICK_EXIT = 2.0
QUICK_EXITS = 3


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `run`.

    Attributes:
        command: the training program and its arguments.
        directory: everything that the job must not lose: the ledger, the logs, the token.
        workers: how many workers to start with.
        min_workers: below this number training pauses.
        max_workers: the limit of `scale`; `workers` if None.
        multiple_of: a world must have a multiple of this many workers.
        job: the name of the job; the name of the directory if empty.
        lease: seconds without a heartbeat after which a worker is expelled.
        hang_after: seconds without progress after which a worker is killed.
        zygote: whether workers are forked from a process that has imported torch.
        quiet: whether to keep the workers' output off the terminal.
        resume: "fresh" starts the job again, "anyway" continues it with changed settings; see `ResumePolicy`.
    """

    command: tuple[str, ...]
    directory: Path
    workers: int = 1
    min_workers: int = 1
    max_workers: int | None = None
    multiple_of: int = 1
    job: str = ""
    lease: float = 1.0
    hang_after: float = 300.0
    zygote: bool = True
    quiet: bool = False
    resume: str = "auto"

    def limits(self) -> WorldLimits:
        """Return the limits of a world, or raise if they contradict each other."""
        max_workers = self.max_workers if self.max_workers is not None else max(self.workers, self.min_workers)
        if not 1 <= self.min_workers <= self.workers <= max_workers:
            raise ElasticError(
                "BadLimits",
                f"--min {self.min_workers}, -n {self.workers} and --max {max_workers} are not in ascending order",
                hint="choose 1 <= --min <= -n <= --max",
            )
        if self.multiple_of < 1 or self.workers % self.multiple_of:
            nearest = max(1, self.workers // max(1, self.multiple_of)) * max(1, self.multiple_of)
            raise ElasticError(
                "BadLimits",
                f"{self.workers} workers is not a multiple of {self.multiple_of}",
                hint=f"use -n {nearest} or another --multiple-of",
            )
        return WorldLimits(self.min_workers, max_workers, self.multiple_of, self.workers)


class LocalRunner:
    """Runs one job on this machine."""

    def __init__(self, options: RunOptions, *, write_line: Callable[[str], None] | None = None) -> None:
        self.options = options
        self._limits = options.limits()
        self._write_line = write_line or ((lambda text: None) if options.quiet else print_line)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self._listener.getsockname()[1])
        self._record = self._create_record()
        self._coordinator: asyncio.subprocess.Process | None = None
        self.agent: ElasticAgent | None = None

    def _create_record(self) -> JobRecord:
        """Write the job's record, with the token and the worker numbers of an earlier run."""
        options, limits = self.options, self._limits
        if options.resume == "fresh":
            remove_progress(options.directory)
        earlier = read_record(options.directory) if has_job(options.directory) else None
        fresh_before = earlier is not None and earlier.get("resume") == "fresh"
        record: JobRecord = {
            "job": options.job or (earlier["job"] if earlier else "") or options.directory.resolve().name,
            "token": earlier["token"] if earlier else secrets.token_urlsafe(24),
            "address": f"127.0.0.1:{self.port}",
            "workers": earlier.get("workers", options.workers) if earlier else options.workers,
            "next_worker": earlier.get("next_worker", 0) if earlier else 0,
            "lease": options.lease,
            "hang_after": options.hang_after,
            "limits": {
                "min_workers": limits.min_workers,
                "max_workers": limits.max_workers,
                "multiple_of": limits.multiple_of,
                "target_workers": limits.target_workers,
            },
            "runner": os.getpid(),
            "run": (earlier.get("run") if earlier else "") or secrets.token_hex(8),
            # A fresh start stays one when it is resumed: the checkpoints before it do not count.
            "resume": "fresh" if fresh_before and options.resume == "auto" else options.resume,
        }
        write_record(options.directory, record)
        return record

    async def run(self) -> wire.Stop:
        """Run the job to its end."""
        record, options = self._record, self.options
        config = AgentConfig(
            ("127.0.0.1", self.port),
            record["job"],
            record["token"],
            "local",
            options.command,
            options.directory,
            workers=record["workers"],
            first_number=record["next_worker"],
            zygote=options.zygote,
            environment={RESUME_VARIABLE: record.get("resume", "auto"), RUN_VARIABLE: record.get("run", "")},
        )
        agent = self.agent = ElasticAgent(config, write_line=self._write_line)
        supervisor = asyncio.create_task(self._supervise_coordinator(agent))
        watch = asyncio.create_task(self._watch_coordinator())
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._interrupt, agent)
        try:
            return await agent.run()
        finally:
            supervisor.cancel()
            watch.cancel()
            await asyncio.gather(supervisor, watch, return_exceptions=True)
            await self._stop_coordinator()
            record["next_worker"], record["address"], record["runner"] = agent.next_number, "", 0
            write_record(options.directory, record)
            self._listener.close()

    def _interrupt(self, agent: ElasticAgent) -> None:
        """End all processes at once: the workers cannot know that the job goes on later."""
        agent.end(wire.Stop(StopCause.RETIRED, INTERRUPTED))

    async def _watch_coordinator(self) -> None:
        """Kill a coordinator that does not respond: a stopped one would block every change of the world."""
        limit = max(SILENCE, 3 * self.options.lease)
        watched, responded_at = None, time.monotonic()
        while True:
            await asyncio.sleep(1)
            process = self._coordinator
            if process is not watched or process is None or await self._responds(limit / 2):
                watched, responded_at = process, time.monotonic()
            elif time.monotonic() - responded_at > limit:
                sys.stderr.write(f"coordinator does not respond, restarting it: pid={process.pid}\n")
                with suppress(ProcessLookupError):
                    process.kill()

    async def _responds(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    async def _supervise_coordinator(self, agent: ElasticAgent) -> None:
        """Restart the coordinator whenever it dies; end the job if it cannot start."""
        quick_exits = 0
        while True:
            started_at = time.monotonic()
            self._coordinator = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "torchyard.elastic",
                "coordinator",
                "--dir",
                str(self.options.directory),
                "--listener",
                str(self._listener.fileno()),
                "--with-parent",
                str(os.getpid()),  # this runner holds the port: without it no worker could connect
                pass_fds=[self._listener.fileno()],
                start_new_session=True,
            )
            code = await self._coordinator.wait()
            if agent.stop is not None or code == 0:
                return
            quick_exits = quick_exits + 1 if code > 0 and time.monotonic() - started_at < QUICK_EXIT else 0
            if code == COORDINATOR_REFUSED or quick_exits == QUICK_EXITS:
                agent.end(wire.Stop(StopCause.FAILED, "the coordinator could not start; see its message above"))
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


def remove_progress(directory: Path) -> None:
    """Forget what an earlier run of the job has done: the ledger, the states in shared memory, the token."""
    if not has_job(directory):
        return
    runner = read_record(directory)["runner"]
    if runner and Path(f"/proc/{runner}").exists():
        raise ElasticError(
            "JobRunning", f"process {runner} runs the job in {directory}", hint="stop it first, or use another --dir"
        )
    shutil.rmtree(shared_memory_dir(directory), ignore_errors=True)
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", JOB_FILE):
        (directory / name).unlink(missing_ok=True)


async def serve_coordinator(directory: Path, listener: socket.socket | None, *, host: str, port: int) -> wire.Stop:
    """Serve the coordinator of the job in a directory until the job has ended and its workers know."""
    raise_file_limit()
    record = read_record(directory)
    settings = CoordinatorConfig(
        record["job"],
        record["token"],
        directory / "ledger.db",
        host=host,
        port=port,
        listener=listener,
        limits=WorldLimits(**record["limits"]),
        lease=record["lease"],
        hang_after=record["hang_after"],
    )
    server = CoordinatorServer(settings)
    await server.start()
    finished = asyncio.create_task(server.coordinator.finished())
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    termination = asyncio.create_task(terminated.wait())
    await asyncio.wait([finished, termination], return_when=asyncio.FIRST_COMPLETED)
    if finished.done():
        # Late workers must still get the outcome; the runner sends SIGTERM when all have it.
        with suppress(TimeoutError):
            async with asyncio.timeout(15):
                await terminated.wait()
    outcome = server.coordinator.outcome or wire.Stop(StopCause.RETIRED, "the coordinator got SIGTERM")
    finished.cancel()
    termination.cancel()
    await server.close()
    return outcome


def raise_file_limit() -> None:
    """Allow this process as many open files as the kernel lets it have: every worker is a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(options: RunOptions, *, write_line: Callable[[str], None] | None = None) -> int:
    """Train with `options.command` to the end, and return the exit code of `yard elastic run`."""
    if not options.command:
        raise ElasticError(
            "NoCommand", "there is no command to run", hint="put the program after --, for example: -- python train.py"
        )
    stop = asyncio.run(LocalRunner(options, write_line=write_line).run())
    message = stop.message
    if message == INTERRUPTED:
        sys.stderr.write(f"interrupted; {_next_run(options.directory)}\n")
        return INTERRUPTED_CODE
    sys.stderr.write(f"{stop.cause}: {message}\n")
    return 0 if stop.cause is StopCause.FINISHED else 1


def _next_run(directory: Path) -> str:
    """Return where the same command would continue."""
    saved = LedgerReader(directory / "ledger.db").checkpoints() if (directory / "ledger.db").exists() else []
    if not saved:
        return "no checkpoint was saved: the same command starts again from the beginning (see checkpoints= of train)"
    step, path = saved[-1]
    return f"the same command continues from step {step} ({path})"


def strip_separator(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command without the `--` before it."""
    return tuple(command[1:] if command and command[0] == "--" else command)
