"""The coordinator's shell: one control stream per worker, timers, and the ledger behind them. Decides nothing itself.

Everything it knows about membership is in `fleet`; this module turns sockets and clocks into facts for it, and its
orders into messages. It can be killed at any moment: workers train on, and tell its successor where they are.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.coordinator import admission, http
from torchyard.elastic.coordinator.ledger_writer import LedgerWriter
from torchyard.elastic.coordinator.membership import (
    Action,
    Membership,
    MembershipEvent,
    SendMessage,
    WorldLimits,
    WorldStarted,
)
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import Fence, Message

FLUSH_EVERY = 0.05
GRACE_FOR_BROKEN = 0.02
"""A worker often feels a peer's death before the coordinator reads its EOF: wait for that better explanation."""
REBALANCE_EVERY = 1.0
WORKING = ("loading", "computing", "applying")
"""Phases in which a worker waits for nobody: standing still in one is a hang. The program's own loop body is not."""


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    job: str
    token: str
    ledger: Path
    host: str = "127.0.0.1"
    port: int = 0
    listener: socket.socket | None = None
    limits: WorldLimits = field(default_factory=WorldLimits)
    lease: float = 1.0
    start_within: float = 60.0
    return_within: float = 3.0
    hang_after: float = 300.0


@dataclass(slots=True)
class Peer:
    """One connection that has said who it is."""

    hello: wire.Hello
    writer: asyncio.StreamWriter
    seen: float
    step: int = 0
    phase: str = ""
    since: float = 0.0
    told_hung: bool = False

    def send(self, message: Message) -> None:
        self.post(wire.encode(message))

    def post(self, frame: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(frame)

    def heard(self, step: int, phase: str) -> None:
        if (step, phase) != (self.step, self.phase):
            self.step, self.phase, self.since = step, phase, time.monotonic()


class Coordinator:
    def __init__(self, settings: CoordinatorConfig) -> None:
        self.settings = settings
        self.ledger = Ledger(settings.ledger, job=settings.job)
        self.scribe = LedgerWriter(self.ledger)
        self.fleet = Membership(self.ledger.incarnation, settings.limits)
        self.workers: dict[str, Peer] = {}
        self.agents: dict[str, Peer] = {}
        self.config: dict[str, Any] = self.ledger.recall("config", {})
        self.outcome: wire.Stop | None = None
        self.recoveries: list[dict[str, Any]] = []
        self.changes = 0
        self.begun = time.time()
        self._failures: dict[tuple[int, int], dict[str, wire.ProgramFailed]] = {}
        self._world_fence = wire.NO_FENCE
        self._caused = 0.0
        self._unheard_ms: float | None = None
        """How long the last lost worker had been silent when its loss was seen: more than that it took nobody."""
        self._finished = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._take_over()

    def _take_over(self) -> None:
        """Begin where the last incarnation ended."""
        want = self.ledger.recall("want", self.settings.limits.want)
        self.fleet.limits = replace(self.settings.limits, want=want)
        fence, members = self.ledger.last_world()
        if self.ledger.order is not None:
            self.fleet.micro_batches = self.ledger.order.micro_batches
        self.fleet.step = self.ledger.last_step()
        if members:
            self.fleet.adopt(fence, members)
            self._world_fence = fence
            self.scribe.event("CoordinatorRestarted", f"incarnation {self.ledger.incarnation}", world=list(members))

    async def start(self) -> int:
        given = self.settings.listener
        if given is not None:
            self._server = await asyncio.start_server(self._accept, sock=given)
        else:
            self._server = await asyncio.start_server(
                self._accept, self.settings.host, self.settings.port, backlog=4096
            )
        self._tasks = [asyncio.create_task(self._watch_leases()), asyncio.create_task(self._keep_house())]
        return int(self._server.sockets[0].getsockname()[1])

    async def finished(self) -> wire.Stop:
        await self._finished.wait()
        assert self.outcome is not None
        return self.outcome

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._server.close()
        for peer in [*self.workers.values(), *self.agents.values()]:
            peer.writer.close()
        await asyncio.to_thread(self.scribe.close)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            prefix = await reader.readexactly(wire.LENGTH.size)
            if prefix.isalpha() or prefix.strip().isalpha():
                await http.answer(self, prefix, reader, writer)
                return
            await self._serve(prefix, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ElasticError as error:
            writer.write(wire.encode(wire.Rejection(error.code, error.message, error.hint)))
            self.scribe.event("Refused", error.message, code=error.code)
        finally:
            if not writer.is_closing():
                writer.close()

    async def _serve(self, prefix: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = wire.decode(await reader.readexactly(wire.frame_length(prefix)))
        if not isinstance(hello, wire.Hello):
            raise ElasticError("BadMessage", "a connection begins with hello")
        admission.admit(hello, job=self.settings.job, token=self.settings.token)
        peer = Peer(hello, writer, time.monotonic())
        peer.send(wire.Welcome(self.ledger.incarnation, self.settings.lease))
        if hello.role == "agent":
            await self._serve_agent(peer, reader)
            return
        self._settle_config(hello)
        old = self.workers.get(hello.name)
        self.workers[hello.name] = peer
        if old is not None:
            old.writer.close()
        if self.outcome is not None:
            peer.send(self.outcome)
        else:
            self.scribe.event("WorkerJoined", f"{hello.name} joined", node=hello.node, pid=hello.pid)
            self._do(self.fleet.joined(hello))
            self._check_done()
        try:
            while True:
                self._hear(peer, await wire.receive(reader))
        finally:
            if self.workers.get(hello.name) is peer:
                self._gone(hello.name, "died (its connection closed)")

    def _settle_config(self, hello: wire.Hello) -> None:
        """The first worker settles what the job computes."""
        told = dict(hello.config)
        order = StepSampler(**told.pop("order"))
        self.ledger.settle(order)
        self.fleet.micro_batches = order.micro_batches
        if not self.config:
            self.config = told
            self.scribe.submit(lambda: self.ledger.remember("config", told))
        admission.compare(hello.name, told, self.config)

    async def _serve_agent(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        hello = peer.hello
        self.agents[hello.name] = peer
        gone = [name for name in self.fleet.awaited if name.startswith(f"{hello.node}-") and name not in hello.members]
        self._do(self.fleet.vanished(gone, "died before the coordinator came back"))
        peer.send(wire.TargetWorkers(self.fleet.limits.want) if self.outcome is None else self.outcome)
        try:
            while True:
                message = await wire.receive(reader)
                if isinstance(message, wire.WorkerExiting):
                    self._gone(message.worker, "died (its agent saw it end)")
                elif isinstance(message, wire.AgentEvent):
                    self.scribe.event(message.reason, message.message, node=hello.node)
                    if message.reason == "StartFailed":
                        self.fail(message.message)
        finally:
            if self.agents.get(hello.name) is peer:
                del self.agents[hello.name]

    def _hear(self, peer: Peer, message: Message) -> None:  # noqa: C901, PLR0912 - one branch per message type
        name = peer.hello.name
        peer.seen = time.monotonic()
        match message:
            case wire.Heartbeat(step=step, phase=phase, cost=cost):
                peer.heard(step, phase)
                self.fleet.measured(name, cost)
            case wire.StepsApplied(fence=fence, rows=rows):
                if fence == self._world_fence and rows:
                    self.scribe.applied(message, world=len(self.fleet.world), by=name)
                    self.fleet.step = max(self.fleet.step, rows[-1][0])
            case wire.StoreValue(fence=fence):
                if fence in (self.fleet.fence, self._world_fence):
                    for other in self.fleet.world:
                        if other in self.workers:
                            self.workers[other].send(message)
            case wire.ReportProgress(fence=fence, standing=standing):
                self._do(self.fleet.reported(name, fence, standing))
            case wire.GroupFailed(fence=fence, reason=reason):
                later = asyncio.get_running_loop().call_later
                later(GRACE_FOR_BROKEN, lambda: self._do(self.fleet.broken(name, fence, reason)))
            case wire.LeaveRequest(reason=reason):
                self.scribe.event("WorkerLeaving", f"{name} asked to leave: {reason}")
                self._do(self.fleet.leaving(name, reason))
            case wire.WorldFormed(fence=fence, durations=durations):
                self._formed(name, fence, durations)
            case wire.ProgramFailed():
                self._failed(name, message)
            case wire.CheckpointSaved(fence=fence, step=step, path=path, sha256=sha256):
                self.scribe.submit(lambda: self.ledger.saved(step, path, sha256))
                self.scribe.event("CheckpointSaved", f"step {step} is durable at {path}", step=step, sha256=sha256)
            case wire.TrainingDone(step=step, digest=digest):
                self.fleet.done(name, digest, step)
                self._check_done()
            case _:
                raise ElasticError("BadMessage", f"{type(message).__name__} is not for the coordinator")

    def _gone(self, name: str, why: str) -> None:
        peer = self.workers.pop(name, None)
        if peer is None or self.outcome is not None:
            return
        peer.writer.close()
        self._unheard_ms = round((time.monotonic() - peer.seen) * 1000, 2)
        self.scribe.event("WorkerLost", f"{name} {why}", step=peer.step, phase=peer.phase, detect_ms=self._unheard_ms)
        self._do(self.fleet.lost(name, why))
        self._check_done()

    def _do(self, orders: list[Action]) -> None:
        frames: dict[int, bytes] = {}  # the same news for thousands is encoded, and even compared, only once
        for order in orders:
            match order:
                case SendMessage(to=to, message=message):
                    if isinstance(message, wire.StartRendezvous) and not self._caused:
                        self._caused = time.monotonic()
                    if to in self.workers:
                        frame = frames.get(id(message)) or frames.setdefault(id(message), wire.encode(message))
                        self.workers[to].post(frame)
                case WorldStarted(go=go, reason=reason):
                    self._began(go, reason, urgent=order.urgent)
                case MembershipEvent(reason=reason, message=message):
                    self.scribe.event(reason, message)

    def _began(self, go: wire.StartWorld, reason: str, *, urgent: bool) -> None:
        agree = (time.monotonic() - self._caused) * 1000 if self._caused else 0.0
        self._caused = 0.0
        self._world_fence = go.fence
        self.changes += 1
        self.scribe.reconcile(go.fence, go.step, members=go.members, reason=reason)
        facts = {"generation": go.fence.generation, "members": list(go.members), "step": go.step, "urgent": urgent}
        facts |= {"behind": list(go.behind), "restore": go.restore, "agree_ms": round(agree, 2)}
        if go.speeds:
            facts["speeds"] = list(go.speeds)
        self.scribe.event("WorldBegan", f"{len(go.members)} workers from step {go.step}: {reason}", **facts)

    def _formed(self, name: str, fence: Fence, durations: dict[str, float]) -> None:
        if fence != self._world_fence or name != self.fleet.world[0]:
            return
        self.recoveries.append(durations)
        if self._unheard_ms is not None:
            durations = {"detect_ms": self._unheard_ms} | durations
            self._unheard_ms = None
        told = ", ".join(f"{key} {value:.0f} ms" for key, value in durations.items())
        self.scribe.event("WorldFormed", f"generation {fence.generation} made its first step: {told}", **durations)

    def _failed(self, name: str, failed: wire.ProgramFailed) -> None:
        """The same records failing on two workers are the program's fault, not a worker's."""
        seen = self._failures.setdefault((failed.step, failed.micro), {})
        seen[name] = failed
        where = f"step {failed.step}, micro-batch {failed.micro}, records {list(failed.records)}"
        self.scribe.event("WorkerRaised", f"{name}: {failed.error} at {where}", traceback=failed.traceback)
        if len(seen) > 1:
            self.fail(f"{failed.error} on {' and '.join(sorted(seen))}, at {where}\n{failed.traceback}")

    def _check_done(self) -> None:
        fleet = self.fleet
        held = [fleet.members[name] for name in fleet.world if name in fleet.members]
        if self.outcome is not None or fleet.forming or not held or not all(member.done for member in held):
            return
        digests = {member.done for member in held}
        if len(digests) > 1 and self.config.get("mode") == "strict":
            self.fail(f"the models of the workers differ at the end: {sorted(digests)}")
            return
        step = max(member.standing.step for member in held)
        self.scribe.reconcile(self._world_fence, step, members=fleet.world, reason="finished")
        self._end(wire.Stop("finished", f"{step} steps, model {held[0].done}"))

    def fail(self, message: str) -> None:
        if self.outcome is None:
            self._end(wire.Stop("failed", message))

    def _end(self, stop: wire.Stop) -> None:
        self.outcome = stop
        self.scribe.event("JobFinished" if stop.why == "finished" else "JobFailed", stop.message)
        self.scribe.flush()
        for peer in [*self.workers.values(), *self.agents.values()]:
            peer.send(stop)
        self._finished.set()

    def scale(self, workers: int) -> None:
        limits = self.fleet.limits
        if not limits.least <= workers <= limits.most or workers % limits.multiple_of:
            raise ElasticError(
                "BadScale",
                f"{workers} workers is outside what this job allows",
                hint=f"choose {limits.least} to {limits.most}, in multiples of {limits.multiple_of}",
            )
        self.scribe.event("Scaled", f"from {limits.want} to {workers} workers", workers=workers)
        self.scribe.submit(lambda: self.ledger.remember("want", workers))
        self._do(self.fleet.resize(replace(limits, want=workers)))
        for agent in self.agents.values():
            agent.send(wire.TargetWorkers(workers))

    async def _watch_leases(self) -> None:
        """Whoever is silent longer than its lease is out. If this loop itself was held up, nobody is blamed."""
        pause = self.settings.lease / 10
        last = time.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            if (late := now - last - pause) > pause:
                for peer in self.workers.values():
                    peer.seen += late
            last = now
            for name, peer in list(self.workers.items()):
                if now - peer.seen > self.settings.lease and self.outcome is None:
                    peer.send(wire.Stop("expelled", f"no sign of life for {self.settings.lease} s"))
                    self._gone(name, f"gave no sign of life for {self.settings.lease} s (last in {peer.phase})")

    def _look_for_hangs(self, now: float) -> None:
        """A worker that beats but makes no progress in a phase of its own holds everyone up: its agent ends it."""
        for name, peer in self.workers.items():
            stuck = peer.phase in WORKING and now - peer.since > self.settings.hang_after
            if stuck and not peer.told_hung:
                peer.told_hung = True
                message = f"{name} has been {peer.phase} step {peer.step + 1} for {now - peer.since:.0f} s"
                self.scribe.event("WorkerHung", message, step=peer.step, phase=peer.phase)
                for agent in self.agents.values():
                    if agent.hello.node == peer.hello.node:
                        agent.send(wire.KillHungWorker(name, message))

    async def _keep_house(self) -> None:
        start_by = time.monotonic() + self.settings.start_within
        return_by = time.monotonic() + self.settings.return_within
        rebalance_at = time.monotonic() + REBALANCE_EVERY
        while True:
            await asyncio.sleep(FLUSH_EVERY)
            self.scribe.flush()
            if self.scribe.failure is not None:
                self.fail(f"the ledger cannot be written: {self.scribe.failure}")
            now = time.monotonic()
            if not self.fleet.started and now > start_by and self.workers:
                self._do(self.fleet.start_anyway())
            if self.fleet.awaited and now > return_by:
                self._do(self.fleet.vanished(sorted(self.fleet.awaited), "did not come back"))
            self._look_for_hangs(now)
            if now > rebalance_at:
                rebalance_at = now + REBALANCE_EVERY
                self._do(self.fleet.rebalance())
