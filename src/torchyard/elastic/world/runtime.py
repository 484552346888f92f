"""A worker's life across worlds: leave one, report, form the next, take over state. Knows no data and no gradients."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from torchyard.elastic import wire
from torchyard.elastic.sampler import StepSampler, shares
from torchyard.elastic.wire import NO_FENCE, Fence, StartWorld, WorkerProgress
from torchyard.elastic.world.coordinator_client import CoordinatorClient, Superseded, WorkerStopped, parse_address
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup
from torchyard.elastic.world.state import Snapshot, TrainingState


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Where a worker finds its coordinator, and who it is. Comes from the environment the agent gives it."""

    coordinator: str
    job: str
    token: str
    name: str
    node: str = ""

    @classmethod
    def from_environment(cls) -> WorkerConfig | None:
        get = os.environ.get
        address = get("TORCHYARD_ELASTIC_COORDINATOR")
        if not address:
            return None
        name = get("TORCHYARD_ELASTIC_WORKER") or f"{socket.gethostname()}-{os.getpid()}"
        node = get("TORCHYARD_ELASTIC_NODE", "")
        return cls(address, get("TORCHYARD_ELASTIC_JOB", "job"), get("TORCHYARD_ELASTIC_TOKEN", ""), name, node)


class RestoreSource:
    """Where a fresh worker can find an earlier state: nowhere, unless something better is given."""

    def newest(self) -> int:
        return 0

    def load(self, state: TrainingState) -> int:
        return 0


class WorkerRuntime:
    def __init__(
        self,
        state: TrainingState,
        order: StepSampler,
        *,
        config: dict[str, Any],
        stored: RestoreSource | None = None,
        nccl: bool = False,
    ) -> None:
        self.state = state
        self.order = order
        self.stored = stored or RestoreSource()
        self.step = 0
        self.fence = NO_FENCE
        self.members: tuple[str, ...] = ()
        self.group = ProcessGroup(0, 1)
        self.blocks = shares(order.micro_batches, 1)
        self.recomputed = 0
        self._live = False
        self._running = False
        self._done = ""
        self._config = config
        self._nccl = nccl
        self._clock: dict[str, float] = {}
        self._on_enter: list[Callable[[], None]] = []
        self.link: CoordinatorClient | None = None
        self.name = "alone"

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def block(self) -> range:
        return self.blocks[self.group.rank]

    def on_enter(self, call: Callable[[], None]) -> None:
        self._on_enter.append(call)

    def start(self, seat: WorkerConfig | None) -> None:
        """Take part in the job of this seat, or train alone without one."""
        if seat is None:
            self.step = self.stored.load(self.state)
            self._live = self._running = True
            self._entered()
            return
        self.name = seat.name
        self._seat = seat
        self.link = CoordinatorClient(parse_address(seat.coordinator), self._hello, on_urgent=self._cut)
        os.register_at_fork(after_in_child=self._forked)
        self.link.start()
        self.reform()

    def _forked(self) -> None:
        """A loader's process must not keep our sockets open: others learn of our death by their closing."""
        numbers = self.group.sockets()
        if self.link is not None:
            numbers.add(self.link.fileno())
        for number in numbers:
            with suppress(OSError):
                os.close(number)

    def _hello(self) -> wire.Hello:
        seat = self._seat
        return wire.Hello(
            seat.job,
            seat.token,
            seat.name,
            node=seat.node,
            pid=os.getpid(),
            config=self._config,
            standing=self._standing(),
            running=self._running,
            members=self.members if self._running else (),
            done=self._done,
        )

    def _standing(self) -> WorkerProgress:
        return WorkerProgress(self.fence, self.step, self._live, 0 if self._live else self.stored.newest())

    def _cut(self) -> None:
        self.group.cut()

    def phase(self, name: str) -> None:
        if self.link is not None:
            pulse = self.link.pulse
            pulse.phase, pulse.step = name, self.step

    def change_wanted(self) -> bool:
        if self.link is None:
            return False
        return self.link.wanted(self.fence) is not None

    def broke(self, fault: GroupBroken) -> None:
        """A collective failed in the present world: leave it as soon as the coordinator names the next."""
        assert self.link is not None
        self._clock = {"felt": time.monotonic()}
        self._running = False
        self.group.cut()
        self.link.send(wire.GroupFailed(self.fence, str(fault)))
        self.reform()

    def reform(self) -> None:
        """Report, and take a place in the next world; again, if that world falls apart while it forms."""
        assert self.link is not None
        self._running = False
        held = self.fence
        while True:
            self.phase("waiting")
            wanted = self.link.wait_reform(held)
            if wanted is None:
                continue
            held = wanted.fence
            begun = self._clock.get("felt") or self.link.asked_at()
            try:
                self._join(held, begun)
            except Superseded:
                continue
            except GroupBroken as fault:
                self.group.cut()
                self.link.send(wire.GroupFailed(held, str(fault)))
                continue
            return

    def _join(self, fence: Fence, begun: float) -> None:
        assert self.link is not None
        self.group.close()
        self.link.send(wire.ReportProgress(fence, self._standing()))
        reported = time.monotonic()
        go = self.link.wait_go(fence)
        agreed = time.monotonic()
        self.phase("forming")
        self.group = ProcessGroup(go.members.index(self.name), len(go.members), nccl=self._nccl)
        self.group.connect(self.link, fence)
        formed = time.monotonic()
        self._take_over(go)
        self.fence, self.members = fence, go.members
        self.blocks = shares(self.order.micro_batches, len(go.members), go.speeds or None)
        self._running = True
        self._clock = {"begun": begun, "reported": reported, "agreed": agreed, "formed": formed}
        self._clock["synced"] = time.monotonic()
        self._entered()

    def _entered(self) -> None:
        for call in self._on_enter:
            call()

    def _take_over(self, go: StartWorld) -> None:
        """Bring everyone to the leader's state. Until that has succeeded, a receiver holds nothing worth reporting."""
        if self.name == go.leader:
            if go.restore:
                self.step = self.stored.load(self.state)
                self._live = True
            self._hand_out([go.members.index(name) for name in go.behind])
        elif self.name in go.behind:
            self._live = False
            self._receive(go.members.index(go.leader))
            self.step, self._live = go.step, True
        if self.step != go.step:
            raise GroupBroken(f"the world begins at step {go.step}, this worker holds {self.step}")

    def _hand_out(self, ranks: list[int]) -> None:
        if not ranks:
            return
        snapshot = self.state.capture()
        header = torch.frombuffer(bytearray(snapshot.header()), dtype=torch.uint8)
        body = pack(snapshot)
        sizes = torch.tensor([header.numel(), body.numel()])
        for part in (sizes, header, body):
            self.group.wait(*[self.group.send(part, rank) for rank in ranks])

    def _receive(self, leader: int) -> None:
        group = self.group
        sizes = torch.zeros(2, dtype=torch.int64)
        group.wait(group.receive(sizes, leader))
        header, body = (torch.empty(int(size), dtype=torch.uint8) for size in sizes)
        group.wait(group.receive(header, leader))
        group.wait(group.receive(body, leader))
        snapshot = Snapshot.empty_like(bytes(header.tolist()))
        unpack(body, snapshot)
        self.state.restore(snapshot)

    def applied(self, loss: float | None, digest: str) -> None:
        """A step was applied: the ledger hears of it from the first rank."""
        if self.link is None:
            return
        if self.rank == 0:
            self.link.applied(self.fence, (self.step, loss, digest))
        if "synced" in self._clock:
            self._tell_durations()

    def raised(self, step: int, micro: int, error: Exception) -> None:
        """The program failed at these records. Whether they or this worker are to blame, the coordinator judges."""
        if self.link is not None:
            records = tuple(self.order.record_ids(step, micro))
            text = "".join(traceback.format_exception(error))
            self.link.send(wire.ProgramFailed(step, micro, records, f"{type(error).__name__}: {error}", text))

    def _tell_durations(self) -> None:
        assert self.link is not None
        clock, self._clock = self._clock, {}
        marks = [clock[key] for key in ("begun", "reported", "agreed", "formed", "synced")] + [time.monotonic()]
        names = ("leave_ms", "agree_ms", "form_ms", "sync_ms", "first_step_ms")
        durations = {
            name: round((after - before) * 1000, 2)
            for name, (before, after) in zip(names, pairwise(marks), strict=True)
        }
        self.link.send(wire.WorldFormed(self.fence, durations | {"total_ms": round((marks[-1] - marks[0]) * 1000, 2)}))

    def finish(self) -> None:
        """All steps are done: stay until everyone has them, handing over state where it is needed."""
        if self.link is None:
            return
        self._done = self.state.digest()
        while True:
            self.phase("done")
            self.link.send(wire.TrainingDone(self.step, self._done))
            stop = self.link.wait_stop_or_reform(self.fence)
            if stop is not None and stop.why == "finished":
                return
            try:
                self.link.check()
                self.reform()
            except WorkerStopped as ended:
                if ended.stop.why == "finished":
                    return
                raise

    def close(self) -> None:
        self.group.close()
        if self.link is not None:
            self.link.close()


def pack(snapshot: Snapshot) -> torch.Tensor:
    """All tensors as one run of bytes, in the order of the snapshot."""
    body = torch.empty(snapshot.nbytes, dtype=torch.uint8)
    at = 0
    for tensor in snapshot.tensors:
        size = tensor.numel() * tensor.element_size()
        if size:
            body[at : at + size].copy_(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8))
        at += size
    return body


def unpack(body: torch.Tensor, snapshot: Snapshot) -> None:
    at = 0
    for tensor in snapshot.tensors:
        size = tensor.numel() * tensor.element_size()
        if size:
            tensor.view(-1).view(torch.uint8).copy_(body[at : at + size])
        at += size
