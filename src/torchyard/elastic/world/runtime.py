"""Takes a worker from one world to the next: leave, report, form the group, exchange state. It knows no data.

A worker without a coordinator is a world of one, with the same code.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler, split_micro_batches
from torchyard.elastic.wire import NO_FENCE, Fence, StartWorld, WorkerPhase, WorkerProgress
from torchyard.elastic.world.comparison import first_difference, models_differ
from torchyard.elastic.world.coordinator_client import CoordinatorClient, Superseded, WorkerStopped, parse_address
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup
from torchyard.elastic.world.state import Snapshot, TrainingState, raw_bytes
from torchyard.elastic.world.state_header import LARGEST_HEADER, bad_state

ALONE = "alone"
"""The name of a worker without a coordinator."""
REPORTED_RECORDS = 1000
REPORTED_ERROR = 4096
"""How much of a failure is reported: the numbers of its records, and the characters of its message."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings of a worker, from the environment that its agent has set.

    Attributes:
        coordinator: the coordinator's address as HOST:PORT.
        job: the name of the job.
        token: the secret of the job.
        name: the worker's name, unique in the job.
        node: the name of the worker's machine.
    """

    coordinator: str
    job: str
    token: str = field(repr=False)
    name: str
    node: str = ""

    @classmethod
    def from_environment(cls) -> WorkerConfig | None:
        """Return the settings of this process, or None if it has no coordinator."""
        get = os.environ.get
        address = get("TORCHYARD_ELASTIC_COORDINATOR")
        if not address:
            return None
        name = get("TORCHYARD_ELASTIC_WORKER") or f"{socket.gethostname()}-{os.getpid()}"
        if get("LOCAL_WORLD_SIZE", "1") != "1":  # torchrun has started several processes in this pod
            name = f"{name}.{get('LOCAL_RANK', '0')}"
        node = get("TORCHYARD_ELASTIC_NODE", "")
        return cls(address, get("TORCHYARD_ELASTIC_JOB", "job"), get("TORCHYARD_ELASTIC_TOKEN", ""), name, node)


class RestoreSource:
    """Where a new worker finds an earlier state. This base class has none."""

    def newest(self) -> int:
        """Return the newest step that can be loaded; 0 if there is none."""
        return 0

    def load(self, state: TrainingState) -> int:
        """Load the newest state, and return its step; 0 if there is none."""
        return 0


class WorkerRuntime:
    """A worker's membership in its job.

    Args:
        state: everything that workers exchange.
        sampler: which records a step consumes.
        config: what the job computes; it must be the same on every worker.
        restore_source: where a new worker finds an earlier state.
        nccl: whether gradients travel over NCCL.
        resume: "anyway" lets the first worker of a run replace the settings of its job; see `ResumePolicy`.
    """

    def __init__(
        self,
        state: TrainingState,
        sampler: StepSampler,
        *,
        config: dict[str, Any],
        restore_source: RestoreSource | None = None,
        nccl: bool = False,
        resume: str = "auto",
    ) -> None:
        self.state = state
        self._resume = resume
        self.sampler = sampler
        self.restore_source = restore_source or RestoreSource()
        self.step = 0
        self.fence = NO_FENCE
        self.members: tuple[str, ...] = ()
        self.group = ProcessGroup(0, 1)
        self.blocks = split_micro_batches(sampler.micro_batches, 1)
        self.recomputed = 0
        self._live = False
        self._running = False
        self._done = ""
        self._config = config
        self._nccl = nccl
        self._times: dict[str, float] = {}
        self._on_enter: list[Callable[[], None]] = []
        self.client: CoordinatorClient | None = None
        self.name = ALONE

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def block(self) -> range:
        """The micro-batches of this rank."""
        return self.blocks[self.group.rank]

    @property
    def live(self) -> bool:
        """Whether this worker holds the state of its step."""
        return self._live

    def on_enter(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever this worker enters a world."""
        self._on_enter.append(callback)

    def start(self, config: WorkerConfig | None) -> None:
        """Enter the first world of the job, or train alone without a configuration."""
        if config is None:
            self.step = self.restore_source.load(self.state)
            self._live = self._running = True
            self._entered()
            return
        self.name = config.name
        self._worker_config = config
        self.client = CoordinatorClient(
            parse_address(config.coordinator),
            wire.Authentication(config.job, config.token, config.name),
            self._hello,
            on_urgent=self._abort_group,
        )
        os.register_at_fork(after_in_child=self._close_sockets)
        self.client.start()
        self.rendezvous()

    def _close_sockets(self) -> None:
        """Close the parent's sockets in a forked child: others notice the parent's death by their closing."""
        numbers = self.group.sockets()
        if self.client is not None:
            numbers.add(self.client.fileno())
        for number in numbers:
            with suppress(OSError):
                os.close(number)

    def _hello(self) -> wire.Hello:
        config = self._worker_config
        return wire.Hello(
            config.name,
            node=config.node,
            pid=os.getpid(),
            config=self._config,
            progress=self._progress(),
            running=self._running,
            members=self.members if self._running else (),
            done=self._done,
            resume=self._resume,
        )

    def _progress(self) -> WorkerProgress:
        return WorkerProgress(self.fence, self.step, self._live, 0 if self._live else self.restore_source.newest())

    def _abort_group(self) -> None:
        self.group.abort()

    def set_phase(self, phase: WorkerPhase) -> None:
        """Note what the training thread does, for the next heartbeat."""
        if self.client is not None:
            state = self.client.heartbeat_state
            state.phase, state.step = phase, self.step

    def rendezvous_pending(self) -> bool:
        """Return whether the coordinator wants to end the present world."""
        if self.client is None:
            return False
        return self.client.pending_rendezvous(self.fence) is not None

    def leave_broken_group(self, error: GroupBroken) -> None:
        """Leave the present world after a failed collective, and enter the next."""
        assert self.client is not None
        self._times = {"failed": time.monotonic()}
        self._running = False
        self.group.abort()
        self.client.send(wire.GroupFailed(self.fence, str(error)))
        self.rendezvous()

    def rendezvous(self) -> None:
        """Leave the present world and enter the next; repeat if that one breaks while it forms."""
        assert self.client is not None
        self._running = False
        fence = self.fence
        while True:
            self.set_phase(WorkerPhase.WAITING)
            request = self.client.wait_rendezvous(fence)
            if request is None:
                continue
            fence = request.fence
            begun = self._times.get("failed") or self.client.rendezvous_requested_at()
            try:
                self._enter_world(fence, begun)
            except Superseded:
                continue
            except GroupBroken as error:
                self.group.abort()
                self.client.send(wire.GroupFailed(fence, str(error)))
                continue
            return

    def _enter_world(self, fence: Fence, begun: float) -> None:
        assert self.client is not None
        self.group.close()
        self.client.report(wire.ReportProgress(fence, self._progress()))
        reported = time.monotonic()
        start = self.client.wait_world(fence)
        agreed = time.monotonic()
        self.set_phase(WorkerPhase.FORMING)
        self.group = ProcessGroup(start.members.index(self.name), len(start.members), nccl=self._nccl)
        self.group.connect(self.client, fence)
        formed = time.monotonic()
        self._exchange_state(start)
        self.fence, self.members = fence, start.members
        self.blocks = split_micro_batches(self.sampler.micro_batches, len(start.members), start.speeds or None)
        self._running = True
        self._times = {"begun": begun, "reported": reported, "agreed": agreed, "formed": formed}
        self._times["synced"] = time.monotonic()
        self._entered()

    def _entered(self) -> None:
        for callback in self._on_enter:
            callback()

    def _exchange_state(self, start: StartWorld) -> None:
        """Bring all members to the leader's state. Until that has succeeded, a receiver holds no usable state."""
        if self.name == start.leader:
            if start.restore:
                self.step = self.restore_source.load(self.state)
                self._live = True
            self._send_state([start.members.index(name) for name in start.behind])
        elif self.name in start.behind:
            self._live = False
            self._receive_state(start.members.index(start.leader))
            self.step, self._live = start.step, True
        if self.step != start.step:
            raise GroupBroken(f"the world begins at step {start.step}, but this worker is at step {self.step}")

    def _send_state(self, ranks: list[int]) -> None:
        if not ranks:
            return
        snapshot = self.state.capture()
        header = torch.frombuffer(bytearray(snapshot.header()), dtype=torch.uint8)
        body = pack(snapshot)
        sizes = torch.tensor([header.numel(), body.numel()])
        for part in (sizes, header, body):
            self.group.wait(*[self.group.send(part, rank) for rank in ranks])

    def _receive_state(self, leader: int) -> None:
        group = self.group
        sizes = torch.zeros(2, dtype=torch.int64)
        group.wait(group.receive(sizes, leader))
        header_size, body_size = map(int, sizes)
        source = f"the state from rank {leader}"
        if not 0 <= header_size <= LARGEST_HEADER or body_size < 0:
            raise bad_state(source, f"its header has {header_size} bytes and its body {body_size}")
        header = torch.empty(header_size, dtype=torch.uint8)
        group.wait(group.receive(header, leader))
        snapshot = Snapshot.empty_like(bytes(raw_bytes(header)), source=source, nbytes=body_size)
        body = torch.empty(body_size, dtype=torch.uint8)
        group.wait(group.receive(body, leader))
        unpack(body, snapshot)
        self.state.restore(snapshot)

    def step_applied(self, loss: float | None, digest: str) -> None:
        """Report an applied step; only the first rank reports to the ledger."""
        if self.client is None:
            return
        if self.rank == 0:
            self.client.step_applied(self.fence, (self.step, loss, digest))
        if "synced" in self._times:
            self._report_durations()

    def compare_states(self, window: int | None, likely_cause: Callable[[str], str]) -> None:
        """Compare the states of all members; every member must call it. A difference ends the job.

        Args:
            window: which part of every tensor to read; None reads everything.
            likely_cause: returns what most often makes this part of the state differ.
        """
        if self.group.size == 1:
            return
        difference = first_difference(self.group, self.state.capture(compared=True), self.members, window=window)
        if difference is not None:
            name, workers = difference
            raise self.abort_job(models_differ(self.step, name, workers, likely_cause(name)))

    def abort_job(self, error: ElasticError) -> ElasticError:
        """End the job for all workers because of an error, and return the error."""
        if self.client is not None:
            self.client.send(wire.AbortJob(error.code, wire.cut(error.message), wire.cut(error.hint)))
        return error

    def report_failure(self, step: int, micro: int, error: Exception, ids: list[int] | None = None) -> None:
        """Report that the program raised. The coordinator decides whether the program or this worker is at fault."""
        if self.client is not None:
            records = tuple((self.sampler.record_ids(step, micro) if ids is None else ids)[:REPORTED_RECORDS])
            text = wire.cut("".join(traceback.format_exception(error)))
            summary = f"{type(error).__name__}: {error}"[:REPORTED_ERROR].encode(errors="replace").decode()
            self.client.send(wire.ProgramFailed(step, micro, records, summary, text))

    def _report_durations(self) -> None:
        assert self.client is not None
        times, self._times = self._times, {}
        marks = [times[key] for key in ("begun", "reported", "agreed", "formed", "synced")] + [time.monotonic()]
        names = ("leave_ms", "agree_ms", "form_ms", "sync_ms", "first_step_ms")
        durations = {
            name: round((after - before) * 1000, 2)
            for name, (before, after) in zip(names, pairwise(marks), strict=True)
        }
        durations["total_ms"] = round((marks[-1] - marks[0]) * 1000, 2)
        self.client.send(wire.WorldFormed(self.fence, durations))

    def finish(self, *, early: bool = False) -> None:
        """After the last step, stay until all members have it, and send state to those that need it.

        Args:
            early: whether the program has left its loop before the last step.
        """
        if self.client is None:
            return
        self._done = self.state.digest()
        last = self.step
        while True:
            self.set_phase(WorkerPhase.DONE)
            self.client.report_done(wire.TrainingDone(self.step, self._done, early))
            stop = self.client.wait_stop_or_rendezvous(self.fence)
            if stop is not None and stop.ends_training:
                return
            try:
                self.client.raise_if_stopped()
                self.rendezvous()
            except WorkerStopped as stopped:
                if stopped.stop.ends_training:
                    return
                raise
            if self.step < last:
                raise ElasticError(
                    "SetBack",
                    f"this worker ended its loop at step {last}, but the job continues from step {self.step}",
                    hint="start this worker again unless its agent does: it then trains the missing steps",
                )

    def close(self) -> None:
        self.group.close()
        if self.client is not None:
            self.client.close()


def pack(snapshot: Snapshot) -> torch.Tensor:
    """Return all tensors of a snapshot as one tensor of bytes, in the snapshot's order."""
    body = torch.empty(snapshot.nbytes, dtype=torch.uint8)
    at = 0
    for tensor in snapshot.tensors:
        size = tensor.numel() * tensor.element_size()
        if size:
            body[at : at + size].copy_(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8))
        at += size
    return body


def unpack(body: torch.Tensor, snapshot: Snapshot) -> None:
    """Copy the bytes of `pack` into the tensors of a snapshot."""
    at = 0
    for tensor in snapshot.tensors:
        size = tensor.numel() * tensor.element_size()
        if size:
            tensor.view(-1).view(torch.uint8).copy_(body[at : at + size])
        at += size
