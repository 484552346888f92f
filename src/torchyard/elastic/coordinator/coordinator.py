"""Turns messages into observations for `membership`, and executes its actions: sends messages and writes the ledger.

The coordinator decides nothing about the world itself. It can be killed at any moment: workers go on training, and
report their progress to the next incarnation.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.coordinator import admission
from torchyard.elastic.coordinator.lease import Lease
from torchyard.elastic.coordinator.ledger_writer import LedgerWriter
from torchyard.elastic.coordinator.membership import (
    Action,
    Membership,
    MembershipEvent,
    SendMessage,
    WorldLimits,
    WorldStarted,
)
from torchyard.elastic.coordinator.peer import Peer
from torchyard.elastic.coordinator.recovery_times import RecoveryTimes
from torchyard.elastic.coordinator.trainings import Trainings
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import describe
from torchyard.elastic.ledger import Ledger
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import Message, StopCause

GROUP_FAILED_DELAY = 0.02
"""A worker often notices the death of a peer before the coordinator reads the peer's EOF, which explains more."""
LONGEST_REASON = 500
"""A reason is part of messages to all workers."""


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """The settings of a coordinator.

    Attributes:
        job: the name of the job.
        token: the secret that every connection of the job presents; must not be empty.
        ledger: the path of the ledger.
        host: the address to listen on.
        port: the port to listen on; 0 lets the kernel choose.
        listener: an inherited listening socket, used instead of host and port.
        limits: how many workers a world may have.
        lease: seconds without a heartbeat after which a worker is expelled.
        start_within: seconds to wait for all workers before the job starts with fewer.
        return_within: seconds that a restarted coordinator waits for the members of its world.
        hang_after: seconds without progress after which a worker is killed.
    """

    job: str
    token: str = field(repr=False)
    ledger: Path
    host: str = "127.0.0.1"
    port: int = 0
    listener: socket.socket | None = None
    limits: WorldLimits = field(default_factory=WorldLimits)
    lease: float = 1.0
    start_within: float = 60.0
    return_within: float = 3.0
    hang_after: float = 300.0


class Coordinator:
    """The state of one job and its reactions to messages.

    Attributes:
        workers: the connected workers by name.
        agents: the connected agents by name.
        config: what the job computes, as its first worker described it.
        outcome: how the job ended; None while it runs.
        trainings: which training of its program the job is in.
        start_by: when to begin without the workers that are missing, on the monotonic clock.
        lease: how long a worker may be silent.
    """

    def __init__(self, settings: CoordinatorConfig) -> None:
        if not settings.token:
            raise ElasticError("NoToken", f"job {settings.job!r} has no token", hint="set TORCHYARD_ELASTIC_TOKEN")
        self.settings = settings
        self.ledger = Ledger(settings.ledger, job=settings.job)
        self.ledger_writer = LedgerWriter(self.ledger)
        self.membership = Membership(self.ledger.incarnation, settings.limits)
        self.workers: dict[str, Peer] = {}
        self.agents: dict[str, Peer] = {}
        self.config: dict[str, Any] = self.ledger.get_note("config", {})
        self.outcome: wire.Stop | None = None
        self.recovery_times = RecoveryTimes()
        self.lease = Lease(settings.lease)
        self.started_at = time.monotonic()
        self.trainings = Trainings(self.ledger, self.ledger_writer)
        self.start_by = self.started_at + settings.start_within
        self._program_failures: dict[tuple[int, int], dict[str, wire.ProgramFailed]] = {}
        self._world_fence = wire.NO_FENCE
        self._finished = asyncio.Event()
        self._resume_from_ledger()

    def _resume_from_ledger(self) -> None:
        """Continue where the last incarnation ended."""
        target_workers = self.ledger.get_note("want", self.settings.limits.target_workers)
        self.membership.limits = replace(self.settings.limits, target_workers=target_workers)
        fence, members = self.ledger.last_world()
        if self.ledger.sampler is not None:
            self.membership.micro_batches = self.ledger.sampler.micro_batches
        self.membership.step = self.ledger.last_step()
        if members:
            self.membership.adopt(fence, members)
            self._world_fence = fence
            message = f"incarnation {self.ledger.incarnation}"
            self.ledger_writer.add_event("CoordinatorRestarted", message, world=list(members))

    async def finished(self) -> wire.Stop:
        """Wait for the end of the job."""
        await self._finished.wait()
        assert self.outcome is not None
        return self.outcome

    def add_worker(self, peer: Peer) -> None:
        """A worker has connected; a connection of the same name is superseded."""
        hello = peer.hello
        try:
            if self.trainings.is_finished(hello):
                if self.workers or self.membership.expected or not self.trainings.is_lost(hello):
                    peer.send(self.trainings.stop(admission.read_training(hello.name, hello.config)[0]))
                    return
                self.trainings.reopen(hello)
                self._begin_training()
            self._check_config(hello)
        except ElasticError as error:
            alone = not self.workers and not self.membership.expected
            if alone and error.code in admission.WRONG_SETTINGS:  # no other worker could make it right
                self.fail(f"{error.message}\n  what to do: {error.hint}" if error.hint else error.message)
            raise
        superseded = self.workers.get(hello.name)
        self.workers[hello.name] = peer
        if superseded is not None:
            superseded.writer.close()
        if self.outcome is not None:
            peer.send(self.outcome)
            return
        self.ledger_writer.add_event("WorkerJoined", f"{hello.name} joined", node=hello.node, pid=hello.pid)
        if self.lease.joined(hello.name, hello.pid, time.monotonic()):
            text = f"{hello.name} was not dead but slow: the lease is now {self.lease.seconds} s"
            self.ledger_writer.add_event("LeaseExtended", text, seconds=self.lease.seconds)
        self.execute(self.membership.worker_joined(hello))
        self._check_done()

    def _begin_training(self) -> None:
        """Begin another training of the program: its workers connect again when their programs reach it."""
        earlier, self.config = self.membership, {}
        self.workers.clear()
        self._program_failures.clear()
        self._world_fence = wire.NO_FENCE
        fence = wire.Fence(self.ledger.incarnation, earlier.fence.generation + 1)
        self.membership = Membership(self.ledger.incarnation, earlier.limits, fence=fence)
        self.start_by = time.monotonic() + self.settings.start_within

    def _check_config(self, hello: wire.Hello) -> None:
        """The first worker determines what the job computes; every other worker must agree."""
        sampler, config = admission.read_sampler(hello)
        self._check_progress(hello.name, hello.progress, sampler)
        # The first worker of a run may train more epochs than the run before, and change settings if it was told to.
        first = not self.workers and not hello.running
        self.ledger.fix_sampler(sampler, extend=first)
        self.membership.micro_batches = sampler.micro_batches
        if not self.membership.started:  # later, workers that do not fit into a world stand by
            admission.check_workers(self.membership.limits, sampler.micro_batches)
        if not self.config or (first and hello.resume == "anyway" and config != self.config):
            if self.config:
                self.ledger_writer.add_event("SettingsChanged", describe(self.config, config))
            self.config = config
            self.ledger_writer.submit(lambda: self.ledger.put_note("config", config))
            spare = self.membership.limits.first_workers - sampler.micro_batches
            if spare > 0:
                text = f"micro_batches is {sampler.micro_batches}: that many workers compute, {spare} stand by"
                self.ledger_writer.add_event("WorkersStandBy", text)
        admission.compare_config(hello.name, config, self.config, first=first)
        _, self.trainings.count = admission.read_training(hello.name, config)

    def _check_progress(self, name: str, progress: wire.WorkerProgress, sampler: StepSampler | None) -> None:
        for step in (progress.step, progress.restorable):
            admission.check_step(step, sampler, name=name)

    def remove_worker(self, peer: Peer, reason: str) -> None:
        """A worker is gone, unless a newer connection has superseded this one."""
        name = peer.hello.name
        if self.workers.get(name) is not peer:
            return
        del self.workers[name]
        if self.outcome is not None:
            return
        peer.writer.close()
        detect_ms = self.recovery_times.worker_lost(peer.last_seen)
        facts = {"step": peer.step, "phase": peer.phase, "detect_ms": detect_ms}
        self.ledger_writer.add_event("WorkerLost", f"{name} {reason}", **facts)
        self.execute(self.membership.worker_lost(name, reason))
        self._check_done()

    def add_agent(self, peer: Peer) -> None:
        """An agent has connected: workers of an adopted world that it does not run are gone."""
        hello = peer.hello
        self.agents[hello.name] = peer
        own = [name for name in self.membership.expected if name.startswith(f"{hello.node}-")]
        missing = [name for name in own if name not in hello.members]
        self.execute(self.membership.workers_missing(missing, "died before the coordinator came back"))
        target = wire.TargetWorkers(self.membership.limits.target_workers)
        peer.send(target if self.outcome is None else self.outcome)

    def remove_agent(self, peer: Peer) -> None:
        if self.agents.get(peer.hello.name) is peer:
            del self.agents[peer.hello.name]

    def handle_agent(self, peer: Peer, message: Message) -> None:
        """React to a message of an agent."""
        match message:
            case wire.WorkerExiting(worker=name):
                if name in self.workers:
                    self.remove_worker(self.workers[name], "died (its agent saw it end)")
            case wire.AgentEvent(reason=reason, message=text):
                self.ledger_writer.add_event(reason, text, node=peer.hello.node)
                if reason == "StartFailed":
                    self.fail(text)

    def handle_worker(self, peer: Peer, message: Message) -> None:  # noqa: C901, PLR0912 - one branch per message type
        """React to a message of a worker."""
        name = peer.hello.name
        if self.workers.get(name) is not peer:
            return  # it was superseded, or its training is finished
        peer.last_seen = time.monotonic()
        match message:
            case wire.Heartbeat(step=step, phase=phase, cost=cost):
                peer.update_phase(step, phase)
                self.membership.record_cost(name, cost)
            case wire.StepsApplied(fence=fence, rows=rows):
                for step, _, _ in rows:
                    if not step:
                        raise ElasticError("BadMessage", f"{name} reports step 0 as applied")
                    admission.check_step(step, self.ledger.sampler, name=name)
                if fence == self._world_fence and rows:
                    self.ledger_writer.add_steps(message, world=len(self.membership.world), by=name)
                    self.membership.step = max(self.membership.step, rows[-1][0])
            case wire.StoreValue(fence=fence):
                if fence in (self.membership.fence, self._world_fence):
                    for member in self.membership.world:
                        if member in self.workers:
                            self.workers[member].send(message)
            case wire.ReportProgress(fence=fence, progress=progress):
                self._check_progress(name, progress, self.ledger.sampler)
                self.execute(self.membership.worker_reported(name, fence, progress))
            case wire.GroupFailed(fence=fence, reason=reason):
                later, text = asyncio.get_running_loop().call_later, reason[:LONGEST_REASON]
                later(GROUP_FAILED_DELAY, lambda: self.execute(self.membership.group_failed(name, fence, text)))
            case wire.LeaveRequest():
                reason = message.reason[:LONGEST_REASON]
                self.ledger_writer.add_event("WorkerLeaving", f"{name} asked to leave: {reason}")
                self.execute(self.membership.worker_leaving(name, reason))
            case wire.WorldFormed():
                self._world_formed(name, message)
            case wire.ProgramFailed():
                self._program_failed(name, message)
            case wire.CheckpointSaved(step=step, path=path, sha256=sha256):
                self.ledger_writer.submit(lambda: self.ledger.add_checkpoint(step, path, sha256))
                text = f"step {step} is durable at {path}"
                self.ledger_writer.add_event("CheckpointSaved", text, step=step, sha256=sha256)
            case wire.TrainingDone(step=step, digest=digest, early=early):
                admission.check_step(step, self.ledger.sampler, name=name)
                self.membership.worker_done(name, digest, step)
                if early:
                    self._finish_early(name, step, digest)
                self._check_done()
            case wire.AbortJob(code=code, reason=reason, hint=hint):
                self.ledger_writer.add_event(code, f"{name}: {reason}")
                self.fail(f"{reason}\n  what to do: {hint}" if hint else reason)
            case _:
                raise ElasticError("BadMessage", f"workers may not send {type(message).__name__} to the coordinator")

    def execute(self, actions: list[Action]) -> None:
        """Execute the actions of the membership."""
        frames: dict[int, bytes] = {}  # a message to thousands of workers is encoded, and even compared, only once
        for action in actions:
            match action:
                case SendMessage(to=to, message=message):
                    if isinstance(message, wire.StartRendezvous):
                        self.recovery_times.rendezvous_started()
                    if to in self.workers:
                        frame = frames.get(id(message)) or frames.setdefault(id(message), wire.encode(message))
                        self.workers[to].send_frame(frame)
                case WorldStarted():
                    self._world_started(action)
                case MembershipEvent(reason=reason, message=text):
                    self.ledger_writer.add_event(reason, text)

    def _world_started(self, action: WorldStarted) -> None:
        start = action.world_start
        agree_ms = self.recovery_times.world_started()
        self._world_fence = start.fence
        self.ledger_writer.reconcile(start.fence, start.step, members=start.members, reason=action.reason)
        facts: dict[str, Any] = {"generation": start.fence.generation, "members": list(start.members)}
        facts |= {"step": start.step, "urgent": action.urgent, "behind": list(start.behind)}
        facts |= {"restore": start.restore, "agree_ms": agree_ms}
        if start.speeds:
            facts["speeds"] = list(start.speeds)
        message = f"{len(start.members)} workers from step {start.step}: {action.reason}"
        self.ledger_writer.add_event("WorldBegan", message, **facts)

    def _world_formed(self, name: str, formed: wire.WorldFormed) -> None:
        """Only the first rank's durations count."""
        if formed.fence != self._world_fence or name not in self.membership.world[:1]:
            return
        durations = self.recovery_times.first_step(formed.durations)
        parts = ", ".join(f"{key} {value:.0f} ms" for key, value in durations.items())
        message = f"generation {formed.fence.generation} made its first step: {parts}"
        self.ledger_writer.add_event("WorldFormed", message, **durations)

    def _program_failed(self, name: str, failed: wire.ProgramFailed) -> None:
        """Fail the job if the same records fail on two workers: then the program is at fault, not a worker."""
        failures = self._program_failures.setdefault((failed.step, failed.micro), {})
        failures[name] = failed
        position = f"step {failed.step}, micro-batch {failed.micro}, records {list(failed.records)}"
        self.ledger_writer.add_event(
            "WorkerRaised", f"{name}: {failed.error} at {position}", traceback=failed.traceback
        )
        if len(failures) > 1:
            self.fail(f"{failed.error} on {' and '.join(sorted(failures))}, at {position}\n{failed.traceback}")

    def _check_done(self) -> None:
        membership = self.membership
        members = [membership.members[name] for name in membership.world if name in membership.members]
        all_done = bool(members) and all(member.done for member in members)
        if self.outcome is not None or membership.forming or not all_done:
            return
        digests = {member.done for member in members}
        if len(digests) > 1 and self.config.get("digest_every", 1):
            self.fail(f"the models of the workers differ at the end: {sorted(digests)}")
            return
        step = max(member.progress.step for member in members)
        self.ledger_writer.reconcile(self._world_fence, step, members=membership.world, reason="finished")
        self._end_training(f"{step} steps, model {members[0].done}", step)

    def _finish_early(self, name: str, step: int, digest: str) -> None:
        """The program of a member has left its loop: the job ends with the step that all members have applied."""
        if self.outcome is None and name in self.membership.world:
            self.ledger_writer.reconcile(
                self._world_fence, step, members=self.membership.world, reason=f"{name} left its loop"
            )
            self._end_training(f"{step} steps (the program left its loop early), model {digest}", step)

    def _end_training(self, message: str, step: int) -> None:
        """End the job with its last training; otherwise let the workers go on to the next one."""
        if self.trainings.is_last:
            self._end(wire.Stop(StopCause.FINISHED, message, step))
            return
        peers = list(self.workers.values())
        stop = self.trainings.end(message, step, self.config)
        self._begin_training()
        for peer in peers:
            peer.send(stop)

    def fail(self, message: str) -> None:
        """End the job as failed, unless it has ended already."""
        if self.outcome is None:
            self._end(wire.Stop(StopCause.FAILED, message))

    def _end(self, stop: wire.Stop) -> None:
        self.outcome = stop
        reason = "JobFinished" if stop.cause is StopCause.FINISHED else "JobFailed"
        self.ledger_writer.add_event(reason, stop.message)
        self.ledger_writer.flush()
        for peer in [*self.workers.values(), *self.agents.values()]:
            peer.send(stop)
        self._finished.set()

    def scale(self, workers: int) -> None:
        """Change the number of workers, within the job's limits."""
        limits = self.membership.limits
        if not limits.min_workers <= workers <= limits.max_workers or workers % limits.multiple_of:
            raise ElasticError(
                "BadScale",
                f"{workers} workers is outside the limits of this job",
                hint=f"choose {limits.min_workers} to {limits.max_workers}, in multiples of {limits.multiple_of}",
            )
        self.ledger_writer.add_event("Scaled", f"from {limits.target_workers} to {workers} workers", workers=workers)
        self.ledger_writer.submit(lambda: self.ledger.put_note("want", workers))
        self.execute(self.membership.set_limits(replace(limits, target_workers=workers)))
        for agent in self.agents.values():
            agent.send(wire.TargetWorkers(workers))
