"""Keeps the wanted number of workers alive on this machine and tells the coordinator what it sees.

Decides only how many processes run here and when one is restarted; who is in the world is the coordinator's business.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import gettempdir

from torchyard.elastic import wire
from torchyard.elastic.agent.spawner import Spawner

QUICK = 20.0
"""A worker that fails sooner than this after its start has not recovered from anything."""
QUICK_FAILURES = 3
BACKOFF = (0.0, 0.5, 2.0)
LOOK_EVERY = 0.05
SURVIVORS_FIRST = 0.2
"""A start takes a core for a while: those who go on get this long before a lost one is replaced."""
_PF_EXITING = 0x4
COMPAT = Path(__file__).parent.parent / "compat"
"""Holds `elasticai_api`, which ElasticDL's programs import."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Where an agent works: its coordinator, and what a worker is on this machine."""

    coordinator: tuple[str, int]
    job: str
    token: str
    node: str
    command: tuple[str, ...]
    directory: Path
    workers: int = 1
    """How many the job began with: ElasticDL's programs make a step of that many batches."""
    first_number: int = 0
    zygote: bool = True
    share: int | None = None
    """How many workers belong here when others run elsewhere; all the wanted ones otherwise."""


@dataclass(slots=True)
class WorkerProcess:
    name: str
    pid: int
    born: float
    place: int
    """Which of this machine's workers it is: its copies in shared memory go by it, not by its name."""
    dying: bool = False
    tail: list[str] = field(default_factory=list)


class ElasticAgent:
    def __init__(self, post: AgentConfig, *, say: Callable[[str], None]) -> None:
        self.post = post
        self._say = say
        self._spawner = Spawner(post.command, self._exited, zygote=post.zygote)
        self.memory = memory_of(post.directory)
        self.children: dict[int, WorkerProcess] = {}
        self._early_exits: dict[int, int] = {}
        self._next = post.first_number
        self._target = 0
        self._starting = 0
        self._quick_failures = 0
        self._replace_at = 0.0
        self._writer: asyncio.StreamWriter | None = None
        self._wake = asyncio.Event()
        self._tails: list[asyncio.Task[None]] = []
        self._stopping = False
        self.stop: wire.Stop | None = None

    @property
    def next_number(self) -> int:
        return self._next

    async def run(self) -> wire.Stop:
        """Until the job ends or the agent is told to leave."""
        self._spawner.start()
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._look_for_the_dying())]
        try:
            while self.stop is None:
                await self._fill()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self._wake.wait()
                self._wake.clear()
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            self._kill_all()
            await self._spawner.close()
            await self._last_words()
            await asyncio.gather(*tasks, *self._tails, return_exceptions=True)
            shutil.rmtree(self.memory, ignore_errors=True)
        return self.stop

    async def _listen(self) -> None:
        host, port = self.post.coordinator
        while True:
            try:
                reader, self._writer = await asyncio.open_connection(host, port)
                await self._converse(reader)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
            finally:
                if self._writer is not None:
                    self._writer.close()
                    with suppress(OSError):
                        await self._writer.wait_closed()
                self._writer = None

    async def _converse(self, reader: asyncio.StreamReader) -> None:
        names = tuple(child.name for child in self.children.values())
        post = self.post
        self._send(wire.Hello(post.job, post.token, post.node, "agent", node=post.node, members=names))
        while True:
            self._hear(await wire.receive(reader))

    def _send(self, message: wire.Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    def note(self, reason: str, message: str) -> None:
        self._send(wire.AgentEvent(reason, message))

    def _hear(self, message: wire.Message) -> None:
        match message:
            case wire.TargetWorkers(workers=workers):
                self._target = workers if self.post.share is None else min(workers, self.post.share)
            case wire.KillHungWorker(worker=worker):
                self._tails.append(asyncio.create_task(self._end_hung(worker)))
            case wire.Stop():
                self.end(message)
            case wire.Rejection(reason=reason, hint=hint):
                self.end(wire.Stop("failed", f"{reason}\n  what to do: {hint}"))
        self._wake.set()

    def _living(self) -> list[WorkerProcess]:
        return [child for child in self.children.values() if not child.dying]

    async def _fill(self) -> None:
        while not self._stopping and self.stop is None and len(self._living()) + self._starting < self._target:
            if self._quick_failures:
                await asyncio.sleep(BACKOFF[min(self._quick_failures, len(BACKOFF)) - 1])
            if self._living():
                await asyncio.sleep(self._replace_at - time.monotonic())
            await self._start_one()

    async def _start_one(self) -> None:
        name = f"{self.post.node}-{self._next}"
        taken = {child.place for child in self._living()}
        place = next(number for number in count() if number not in taken)
        self._next += 1
        ours, theirs = os.pipe()
        self._starting += 1
        try:
            pid = await self._spawner.spawn(name, self._environment(name, place), theirs)
        finally:
            self._starting -= 1
            os.close(theirs)
        child = WorkerProcess(name, pid, time.monotonic(), place)
        self.children[pid] = child
        self._tails.append(asyncio.create_task(self._follow(child, ours)))
        self.note("WorkerStarted", f"{name} is process {pid}")
        if pid in self._early_exits:
            self._exited(pid, self._early_exits.pop(pid))

    def _environment(self, name: str, place: int) -> dict[str, str]:
        host, port = self.post.coordinator
        ours = {
            "TORCHYARD_ELASTIC_COORDINATOR": f"{host}:{port}",
            "TORCHYARD_ELASTIC_JOB": self.post.job,
            "TORCHYARD_ELASTIC_TOKEN": self.post.token,
            "TORCHYARD_ELASTIC_WORKER": name,
            "TORCHYARD_ELASTIC_NODE": self.post.node,
            "TORCHYARD_ELASTIC_DIR": str(self.post.directory),
            "TORCHYARD_ELASTIC_MEMORY": str(self.memory),
            "TORCHYARD_ELASTIC_PLACE": str(place),
            "WORKER_NUM": str(self.post.workers),
            "PYTHONUNBUFFERED": "1",
        }
        paths = [str(COMPAT), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, **ours, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    async def _follow(self, child: WorkerProcess, output: int) -> None:
        """Copy what a worker prints to its log and to the terminal, and keep the last lines for a report."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(output, "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        logs = self.post.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            with (logs / f"{child.name}.log").open("wb") as log:
                while line := await _line(reader):
                    log.write(line)
                    log.flush()
                    text = line.decode(errors="replace").rstrip("\n")
                    child.tail = [*child.tail[-19:], text]
                    self._say(f"[{child.name}] {text}")
        finally:
            transport.close()

    async def _look_for_the_dying(self) -> None:
        """A process with much memory takes seconds to end and closes its sockets last: the kernel marks it first."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for child in self._living():
                if exiting(child.pid):
                    self._lost(child)
                    self._send(wire.WorkerExiting(child.name))
                    self._wake.set()

    def _lost(self, child: WorkerProcess) -> None:
        if not child.dying:
            child.dying = True
            self._replace_at = time.monotonic() + SURVIVORS_FIRST

    def _exited(self, pid: int, code: int) -> None:
        child = self.children.pop(pid, None)
        if child is None:
            self._early_exits[pid] = code
            return
        self._lost(child)
        self.note("WorkerExited", f"{child.name} {describe(code)}")
        quick = code > 0 and time.monotonic() - child.born < QUICK
        self._quick_failures = self._quick_failures + 1 if quick else 0
        if self._quick_failures >= QUICK_FAILURES:
            last = "\n".join(child.tail)
            self.note("StartFailed", f"{self._quick_failures} workers in a row failed at once; the last said:\n{last}")
        self._wake.set()

    async def _end_hung(self, name: str) -> None:
        """Have it print where every thread stands, then end it: its log explains the hang."""
        for child in [child for child in self.children.values() if child.name == name]:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)
                await asyncio.sleep(0.3)
                os.kill(child.pid, signal.SIGKILL)
            self.note("WorkerKilled", f"{name} was hung; its threads stood at:\n" + "\n".join(child.tail))

    def end(self, stop: wire.Stop) -> None:
        self.stop = stop
        self._wake.set()

    def leave(self) -> None:
        """A preemption notice for this machine: workers hand over, nothing is restarted."""
        self._stopping = True
        for pid in self.children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    async def _drain(self, seconds: float = 10.0) -> None:
        """Let workers end by themselves: they have heard the same news."""
        self._stopping = True
        deadline = time.monotonic() + seconds
        while self.children and time.monotonic() < deadline:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self._wake.wait()

    async def _last_words(self, seconds: float = 2.0) -> None:
        """A worker's own children may hold its output open long after it: hear what is there, then close."""
        if self._tails:
            _, unheard = await asyncio.wait(self._tails, timeout=seconds)
            for tail in unheard:
                tail.cancel()

    def _kill_all(self) -> None:
        for pid in self.children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def memory_of(directory: Path) -> Path:
    """Shared memory for the job in a directory: it outlives workers, and goes with the agent."""
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(gettempdir())  # noqa: S108  # memory, by its name
    return root / f"torchyard-elastic-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]}"


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        return await reader.read(1 << 16)


def exiting(pid: int) -> bool:
    """Whether the kernel has begun to end a process, as its flags tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & _PF_EXITING)


def describe(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def default_say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
