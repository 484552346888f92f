"""Keeps the target number of workers alive on this machine, and reports to the coordinator.

The agent decides only how many processes run here and when one is restarted. The coordinator decides which of them
form the world.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import gettempdir

from torchyard.elastic import wire
from torchyard.elastic.agent.spawner import Spawner
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.wire import StopCause

QUICK_FAILURE = 20.0
"""A worker that fails within this many seconds of its start has not recovered from anything."""
QUICK_FAILURES = 3
BACKOFF = (0.0, 0.5, 2.0)
POLL_EXITING_EVERY = 0.05
REPLACEMENT_DELAY = 0.2
"""Starting a worker occupies a core. If the survivors need all cores, they get this long to recover before it."""
EXIT_WITHIN = 10.0
"""Seconds that the workers of a failed job have to exit."""
REMIND_EVERY = 60.0
TAIL_LINES = 20
_PF_EXITING = 0x4
COMPAT = Path(__file__).parent.parent / "compat"
"""Contains `elasticai_api`, which ElasticDL's programs import."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent.

    Attributes:
        coordinator: host and port of the coordinator.
        job: the name of the job.
        token: the secret of the job.
        node: the name of this machine; worker names begin with it.
        command: the training program and its arguments.
        directory: where the workers' logs go.
        workers: how many workers the job began with; a step of an ElasticDL program has that many batches.
        first_number: the number of the first worker.
        zygote: whether workers are forked from a process that has imported torch.
        share: the maximum number of workers on this machine; None if no other machine runs any.
        environment: further variables of the workers.
    """

    coordinator: tuple[str, int]
    job: str
    token: str = field(repr=False)
    node: str
    command: tuple[str, ...]
    directory: Path
    workers: int = 1
    first_number: int = 0
    zygote: bool = True
    share: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerProcess:
    """A worker on this machine.

    Attributes:
        name: the worker's name in the job.
        pid: its process id.
        started_at: when it was started, on the monotonic clock.
        index: its index on this machine. A replacement inherits the index, and with it the state in shared memory.
        exiting: whether the kernel has begun to end it.
        tail: the last lines of its output.
    """

    name: str
    pid: int
    started_at: float
    index: int
    exiting: bool = False
    tail: list[str] = field(default_factory=list)


class ElasticAgent:
    """Runs the workers of one machine until the job ends."""

    def __init__(self, config: AgentConfig, *, write_line: Callable[[str], None]) -> None:
        self.config = config
        self._write_line = write_line
        self._spawner = Spawner(config.command, self._on_exit, zygote=config.zygote)
        self.shared_memory = shared_memory_dir(config.directory)
        create_private_dir(self.shared_memory)
        self.processes: dict[int, WorkerProcess] = {}
        self._early_exits: dict[int, int] = {}
        self._next_number = config.first_number
        self._target = 0
        self._starting = 0
        self._quick_failures = 0
        self._replace_at = 0.0
        self._writer: asyncio.StreamWriter | None = None
        self._wake = asyncio.Event()
        self._output_tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._failed_afterwards: list[str] = []
        self.stop: wire.Stop | None = None

    @property
    def next_number(self) -> int:
        return self._next_number

    async def run(self) -> wire.Stop:
        """Run workers until the job ends or `end` is called."""
        self._spawner.start()
        tasks = [asyncio.create_task(self._connect()), asyncio.create_task(self._detect_exiting())]
        try:
            while self.stop is None:
                await self._start_missing()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self._wake.wait()
                self._wake.clear()
            if self.stop.cause is not StopCause.RETIRED:
                await self._wait_for_workers(self.stop)
        finally:
            for task in tasks:
                task.cancel()
            self._kill_all()
            await self._spawner.close()
            await self._drain_output()
            await asyncio.gather(*tasks, *self._output_tasks, return_exceptions=True)
            shutil.rmtree(self.shared_memory, ignore_errors=True)
        if self.stop.cause is StopCause.FINISHED and self._failed_afterwards:
            failed = ", ".join(self._failed_afterwards)
            return wire.Stop(StopCause.FAILED, f"the training finished ({self.stop.message}), but {failed} after it")
        return self.stop

    async def _connect(self) -> None:
        """Keep a connection to the coordinator."""
        host, port = self.config.coordinator
        while True:
            try:
                reader, self._writer = await asyncio.open_connection(host, port)
                await self._run_connection(reader)
            except (OSError, asyncio.IncompleteReadError, ElasticError):  # also a message that is not valid
                await asyncio.sleep(0.1)
            finally:
                if self._writer is not None:
                    self._writer.close()
                    with suppress(OSError):
                        await self._writer.wait_closed()
                self._writer = None

    async def _run_connection(self, reader: asyncio.StreamReader) -> None:
        names = tuple(process.name for process in self.processes.values())
        config = self.config
        authentication = wire.Authentication(config.job, config.token, config.node)
        self._write(
            wire.encode_opening(authentication, wire.Hello(config.node, "agent", node=config.node, members=names))
        )
        while True:
            self._handle(await wire.receive(reader))

    def _send(self, message: wire.Message) -> None:
        self._write(wire.encode(message))

    def _write(self, frames: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frames)

    def record_event(self, reason: str, message: str) -> None:
        """Add an event to the job's event log."""
        self._send(wire.AgentEvent(reason, wire.cut(message)))

    def _handle(self, message: wire.Message) -> None:
        match message:
            case wire.TargetWorkers(workers=workers):
                self._target = workers if self.config.share is None else min(workers, self.config.share)
            case wire.KillHungWorker(worker=worker):
                self._output_tasks.append(asyncio.create_task(self._kill_hung(worker)))
            case wire.Stop():
                self.end(message)
            case wire.Rejection(reason=reason, hint=hint):
                self.end(wire.Stop(StopCause.FAILED, f"{reason}\n  what to do: {hint}"))
        self._wake.set()

    def _live_workers(self) -> list[WorkerProcess]:
        return [process for process in self.processes.values() if not process.exiting]

    async def _start_missing(self) -> None:
        while not self._stopping and self.stop is None and len(self._live_workers()) + self._starting < self._target:
            if self._quick_failures:
                await asyncio.sleep(BACKOFF[min(self._quick_failures, len(BACKOFF)) - 1])
            if self._live_workers():
                await asyncio.sleep(self._replace_at - time.monotonic())
            await self._start_worker()

    async def _start_worker(self) -> None:
        name = f"{self.config.node}-{self._next_number}"
        used = {process.index for process in self._live_workers()}
        index = next(number for number in count() if number not in used)
        self._next_number += 1
        output, worker_end = os.pipe()
        self._starting += 1
        try:
            pid = await self._spawner.spawn(name, self._environment(name, index), worker_end)
        finally:
            self._starting -= 1
            os.close(worker_end)
        process = WorkerProcess(name, pid, time.monotonic(), index)
        self.processes[pid] = process
        self._output_tasks.append(asyncio.create_task(self._copy_output(process, output)))
        self.record_event("WorkerStarted", f"{name} is process {pid}")
        if pid in self._early_exits:
            self._on_exit(pid, self._early_exits.pop(pid))

    def _environment(self, name: str, index: int) -> dict[str, str]:
        host, port = self.config.coordinator
        own = {
            "TORCHYARD_ELASTIC_COORDINATOR": f"{host}:{port}",
            "TORCHYARD_ELASTIC_JOB": self.config.job,
            "TORCHYARD_ELASTIC_TOKEN": self.config.token,
            "TORCHYARD_ELASTIC_WORKER": name,
            "TORCHYARD_ELASTIC_NODE": self.config.node,
            "TORCHYARD_ELASTIC_DIR": str(self.config.directory),
            "TORCHYARD_ELASTIC_MEMORY": str(self.shared_memory),
            "TORCHYARD_ELASTIC_PLACE": str(index),
            "WORKER_NUM": str(self.config.workers),
            "PYTHONUNBUFFERED": "1",
        }
        paths = [str(COMPAT), os.environ.get("PYTHONPATH", "")]
        own |= self.config.environment
        return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    async def _copy_output(self, process: WorkerProcess, output: int) -> None:
        """Copy a worker's output to its log and to the terminal, and keep the last lines for events."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(output, "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        logs = self.config.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            with (logs / f"{process.name}.log").open("wb") as log:
                while line := await _read_line(reader):
                    log.write(line)
                    log.flush()
                    text = line.decode(errors="replace").rstrip("\n")
                    process.tail = [*process.tail[1 - TAIL_LINES :], text]
                    self._write_line(f"[{process.name}] {text}")
        finally:
            transport.close()

    async def _detect_exiting(self) -> None:
        """Poll the kernel's flag: a process with much memory takes seconds to end, and closes its sockets last."""
        while True:
            await asyncio.sleep(POLL_EXITING_EVERY)
            for process in self._live_workers():
                if is_exiting(process.pid):
                    self._mark_exiting(process)
                    self._send(wire.WorkerExiting(process.name))
                    self._wake.set()

    def _mark_exiting(self, process: WorkerProcess) -> None:
        if not process.exiting:
            process.exiting = True
            self._replace_at = time.monotonic() + replacement_delay(
                len(self._live_workers()), cores=len(os.sched_getaffinity(0))
            )

    def _on_exit(self, pid: int, code: int) -> None:
        process = self.processes.pop(pid, None)
        if process is None:
            self._early_exits[pid] = code
            return
        self._mark_exiting(process)
        if code > 0 and self.stop is not None:
            self._failed_afterwards.append(f"{process.name} {describe_exit(code)}")
        self.record_event("WorkerExited", f"{process.name} {describe_exit(code)}")
        quick = code > 0 and time.monotonic() - process.started_at < QUICK_FAILURE
        self._quick_failures = self._quick_failures + 1 if quick else 0
        if self._quick_failures >= QUICK_FAILURES:
            tail = "\n".join(process.tail)
            message = (
                f"{self._quick_failures} workers in a row failed right after their start; output of the last:\n{tail}"
            )
            self.record_event("StartFailed", message)
        self._wake.set()

    async def _kill_hung(self, name: str) -> None:
        """Make a worker print the stacks of its threads, then kill it, so that its log explains the hang."""
        for process in [process for process in self.processes.values() if process.name == name]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR1)
                await asyncio.sleep(0.3)
                os.kill(process.pid, signal.SIGKILL)
            self.record_event("WorkerKilled", f"{name} was hung; its threads were at:\n" + "\n".join(process.tail))

    def end(self, stop: wire.Stop) -> None:
        """End the job on this machine."""
        self.stop = stop
        self._wake.set()

    async def _wait_for_workers(self, stop: wire.Stop) -> None:
        """Wait for the workers to exit: they have got the same `Stop`.

        After a finished training a program may still evaluate or save its model for as long as it needs.
        """
        self._stopping = True
        finished = stop.cause is StopCause.FINISHED
        deadline = time.monotonic() + EXIT_WITHIN
        while live := self._live_workers():
            if time.monotonic() >= deadline:
                if not finished:
                    return
                for process in [process for process in live if is_stopped(process.pid)]:
                    os.kill(process.pid, signal.SIGKILL)  # it was expelled, and would never end
                deadline = time.monotonic() + REMIND_EVERY
                names = ", ".join(process.name for process in live)
                self._write_line(f"training finished, programs still running: workers={names}")
            await self._wait_for_exit()
        deadline = time.monotonic() + EXIT_WITHIN
        while self.processes and time.monotonic() < deadline:  # they are ending, and their exit codes follow
            await self._wait_for_exit()

    async def _wait_for_exit(self) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._wake.wait()

    async def _drain_output(self, seconds: float = 2.0) -> None:
        """Copy the output that is there, then give up: a worker's own children may keep its pipe open."""
        if self._output_tasks:
            _, unfinished = await asyncio.wait(self._output_tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()

    def _kill_all(self) -> None:
        for pid in self.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def replacement_delay(live_workers: int, *, cores: int) -> float:
    """Return how long to wait before a lost worker is replaced. With a free core nobody is slowed down by its start."""
    return 0.0 if live_workers < cores else REPLACEMENT_DELAY


def shared_memory_dir(directory: Path) -> Path:
    """Return the directory in shared memory of the job in `directory`: it outlives workers, but not the agent."""
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(gettempdir())  # noqa: S108  # shared memory by name
    return root / f"torchyard-elastic-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]}"


def create_private_dir(path: Path) -> None:
    """Create a directory for this user alone. One that another user has put there first is refused."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ElasticError(
            "ForeignDirectory",
            f"{path} belongs to another user or is not a directory",
            hint="remove it, or choose another job directory with --dir",
        )
    path.chmod(0o700)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        return await reader.read(1 << 16)


def is_exiting(pid: int) -> bool:
    """Return whether the kernel has begun to end a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & _PF_EXITING)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def describe_exit(code: int) -> str:
    """Return an exit code in words; a negative code is a signal."""
    if code >= 0:
        return f"exited with code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
