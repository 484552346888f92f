"""Decides which workers form the world: observations go in, actions come out. Pure: no clock, no socket, no disk.

A fence identifies a world. The world ends with `StartRendezvous`; every participant reports the state that it holds.
After the last report, `StartWorld` begins the next world from the newest state of all participants. A step that was
applied is never taken back while a worker that applied it is alive (the roll-forward rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from torchyard.elastic.sampler import split_micro_batches
from torchyard.elastic.wire import (
    NO_FENCE,
    Fence,
    Hello,
    Message,
    StartRendezvous,
    StartWorld,
    Stop,
    StopCause,
    WorkerProgress,
)

STRAGGLER_RATIO = 1.3
"""A worker that is this much slower than the median gets fewer micro-batches."""
REBALANCE_THRESHOLD = 0.9
"""A new distribution must shorten the slowest block to at most this fraction."""
MAX_REBALANCE_PAUSE = 1024
"""The most checks that are left out after a new distribution. The pause doubles with each one for the same workers."""


@dataclass(frozen=True, slots=True)
class WorldLimits:
    """How many workers a world may have. The number of micro-batches is an upper bound too.

    Attributes:
        min_workers: fewer wait for others.
        max_workers: more stand by.
        multiple_of: a world has a multiple of so many.
        target_workers: more stand by until the job is scaled.
        start_workers: the first world waits for so many; 0 for `target_workers`.
    """

    min_workers: int = 1
    max_workers: int = 1 << 30
    multiple_of: int = 1
    target_workers: int = 1
    start_workers: int = 0

    @property
    def first_workers(self) -> int:
        return self.start_workers or self.target_workers


@dataclass(slots=True)
class Member:
    """A connected worker."""

    name: str
    progress: WorkerProgress
    seniority: int
    leaving: bool = False
    done: str = ""
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to one worker."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class WorldStarted:
    """A world began: the ledger and the event log record it."""

    world_start: StartWorld
    reason: str
    urgent: bool


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """Record an event that changes no world."""

    reason: str
    message: str


Action = SendMessage | WorldStarted | MembershipEvent


@dataclass
class Membership:
    """The workers of a job and the world that some of them form. Every method returns the actions to execute."""

    incarnation: int
    limits: WorldLimits = field(default_factory=WorldLimits)
    micro_batches: int = 1 << 30
    fence: Fence = NO_FENCE
    step: int = 0
    world: tuple[str, ...] = ()
    members: dict[str, Member] = field(default_factory=dict)
    speeds: tuple[float, ...] = ()
    started: bool = False
    forming: bool = False
    urgent: bool = False
    reason: str = ""
    expected: set[str] = field(default_factory=set)
    _participants: tuple[str, ...] = ()
    _unreported: set[str] = field(default_factory=set)
    """Participants that have not reported yet. A set, because thousands of workers report one by one."""
    _joined_count: int = 0
    _rebalance_pause: int = 0
    _checks_left_out: int = 0

    @property
    def running(self) -> bool:
        return bool(self.world) and not self.forming

    def adopt(self, fence: Fence, world: tuple[str, ...]) -> None:
        """Take over the world of an earlier incarnation, which goes on training while its members reconnect.

        The world stays as it is until all members have reconnected or are known to be gone: a second world beside it
        would fork the lineage of the model.
        """
        self.fence, self.world, self.started = fence, world, True
        self.expected = set(world) - set(self.members)

    def worker_joined(self, hello: Hello) -> list[Action]:
        """A worker has connected or reconnected."""
        self._joined_count += 1
        name = hello.name
        self.members[name] = Member(name, hello.progress, self._joined_count, done=hello.done)
        self.step = max(self.step, hello.progress.step if hello.progress.live else 0)
        was_expected = name in self.expected
        self.expected.discard(name)
        if hello.progress.fence > self.fence:
            # Another incarnation issued it, perhaps one whose ledger is lost. Workers ignore fences that are not newer.
            self.incarnation = max(self.incarnation, hello.progress.fence.incarnation + 1)
            if hello.running:
                self.adopt(hello.progress.fence, hello.members)
            else:
                self.fence = hello.progress.fence
                if self.forming:
                    return self._start_rendezvous(self.reason, urgent=self.urgent)
        if hello.running and hello.progress.fence == self.fence and name in self.world and not self.forming:
            return self.update_world("the world is complete again")
        if self.forming and name in self._participants:
            return [SendMessage(name, StartRendezvous(self.fence, self.urgent, self.reason))]
        if name in self.world and not self.forming:
            # It restarted without its state: the other members of the world wait for it in vain.
            return self._start_rendezvous(f"{name} lost its place in the world", urgent=True)
        if self.forming and (was_expected or not self._unreported):
            # The rendezvous waits for it, or was paused until enough workers were there.
            return self._start_rendezvous(self.reason, urgent=self.urgent)
        return self.update_world(f"{name} joined")

    def worker_lost(self, name: str, reason: str) -> list[Action]:
        """A worker is gone."""
        if self.members.pop(name, None) is None:
            return []
        if name in (self._participants if self.forming else self.world):
            return self._start_rendezvous(f"{name} {reason}", urgent=True)
        return []

    def workers_missing(self, names: Sequence[str], reason: str) -> list[Action]:
        """Members of an adopted world will not reconnect."""
        missing = [name for name in names if name in self.expected]
        self.expected -= set(missing)
        if not missing:
            return []
        if self.forming:
            return [] if self._unreported or self._must_wait() else self._start_world()
        return self._start_rendezvous(f"{', '.join(missing)} {reason}", urgent=True)

    def group_failed(self, name: str, fence: Fence, reason: str) -> list[Action]:
        """A member could not complete a collective in the world of this fence."""
        if fence != self.fence or self.forming:
            return []
        return self._start_rendezvous(f"{name} lost the group: {reason}", urgent=True)

    def worker_leaving(self, name: str, reason: str) -> list[Action]:
        """A worker asks to leave; a member of the world hands over first."""
        if name not in self.members or self.members[name].leaving:
            return []
        self.members[name].leaving = True
        if name not in self.world:
            return [SendMessage(name, Stop(StopCause.RETIRED, reason))]
        return self.update_world(f"{name} leaves: {reason}")

    def set_limits(self, limits: WorldLimits) -> list[Action]:
        """The number of workers changes: retire the surplus, and change the world."""
        self.limits = limits
        spare = sorted((m for m in self.members.values() if m.name not in self.world), key=lambda m: m.seniority)
        # Members of an adopted world that have not come back may be gone: those who wait would then be all there is.
        is_known = not self.forming and not self.expected
        surplus = spare[max(0, limits.target_workers - len(self.world)) :] if is_known else []
        for member in surplus:
            member.leaving = True
        reason = f"the target is {limits.target_workers} workers"
        actions: list[Action] = [SendMessage(m.name, Stop(StopCause.RETIRED, reason)) for m in surplus]
        return actions + self.update_world(reason)

    def update_world(self, reason: str) -> list[Action]:
        """Change the world at a step boundary if its members should differ. A rendezvous under way is left alone."""
        needed = self.limits.min_workers
        if not self.started:
            needed = min(self.limits.first_workers, self.limits.max_workers, self.micro_batches)
            needed = max(needed // self.limits.multiple_of * self.limits.multiple_of, self.limits.min_workers)
        if self.forming or self.expected or len(self.members) < needed:
            return []
        chosen = self._select_members()
        if len(chosen) < needed or set(chosen) == set(self.world):
            return []
        return self._start_rendezvous(reason, urgent=False)

    def start_without_missing(self) -> list[Action]:
        """The wait for all workers is over: start with those that are connected, if they are enough."""
        if self.started or self.forming or len(self._select_members()) < self.limits.min_workers:
            return []
        self.started = True
        return self._start_rendezvous("not every worker connected in time", urgent=False)

    def _select_members(self) -> list[str]:
        """Prefer the oldest members, because they hold state. Spare workers stand by."""
        present = [member for member in self.members.values() if not member.leaving]
        inside = set(self.world)
        present.sort(key=lambda member: (member.name not in inside, member.seniority))
        room = min(self.limits.target_workers, self.limits.max_workers, self.micro_batches)
        room = min(room, len(present)) // self.limits.multiple_of * self.limits.multiple_of
        return [member.name for member in present[:room]]

    def _start_rendezvous(self, reason: str, *, urgent: bool) -> list[Action]:
        chosen = self._select_members()
        candidates = tuple(dict.fromkeys([*self.world, *chosen]))
        self._participants = tuple(name for name in candidates if name in self.members)
        # A member that has left waits for `StartWorld` in any case; those still inside must not wait for it.
        urgent = urgent or (self.forming and self.urgent)
        self.fence = Fence(self.incarnation, self.fence.generation + 1)
        self.forming, self.urgent, self.reason = True, urgent, reason
        self._unreported = set(self._participants)
        message = StartRendezvous(self.fence, urgent, reason)
        return [SendMessage(name, message) for name in self._participants]

    def worker_reported(self, name: str, fence: Fence, progress: WorkerProgress) -> list[Action]:
        """A participant of the rendezvous has left its world."""
        member = self.members.get(name)
        if member is None:
            return []
        if name in self.world and not self.forming and fence > self.fence:
            # The incarnation that started this rendezvous is gone: nothing else would end it.
            member.progress = progress
            return self._start_rendezvous(f"{name} has left the world", urgent=True)
        if fence != self.fence or not self.forming:
            return []
        member.progress = progress
        self._unreported.discard(name)
        return [] if self._unreported or self._must_wait() else self._start_world()

    def _must_wait(self) -> bool:
        """Return whether no participant holds live state, but a member of the adopted world may return with it."""
        return bool(self.expected) and not any(self.members[name].progress.live for name in self._participants)

    def _start_world(self) -> list[Action]:
        """All participants have reported: begin the next world, or wait for enough workers."""
        participants = set(self._participants)
        chosen = [name for name in self._select_members() if name in participants]
        if len(chosen) < self.limits.min_workers:
            if len(self._select_members()) >= self.limits.min_workers:
                return self._start_rendezvous(self.reason, urgent=self.urgent)
            return [
                MembershipEvent(
                    "Paused", f"{len(chosen)} workers are connected, at least {self.limits.min_workers} are needed"
                )
            ]
        # Leaving workers report too: if only they hold the newest state, one stays for one more world and sends it.
        newest = max(_state_rank(self.members[name].progress) for name in self._participants)
        if all(_state_rank(self.members[name].progress) != newest for name in chosen):
            chosen.append(next(n for n in self._participants if _state_rank(self.members[n].progress) == newest))
        leader = next(name for name in chosen if _state_rank(self.members[name].progress) == newest)
        best = self.members[leader].progress
        step = best.step if best.live else best.restorable
        current = {n for n in chosen if best.live and _state_rank(self.members[n].progress) == newest}
        behind = tuple(name for name in chosen if name != leader and name not in current)
        speeds = self._speeds(chosen)
        world_start = StartWorld(self.fence, tuple(chosen), step, leader, behind, restore=not best.live, speeds=speeds)
        staying = set(chosen)
        retired = [name for name in self._participants if name not in staying]
        if staying != set(self.world):
            self._rebalance_pause = self._checks_left_out = 0
        self.world, self.step, self.speeds, self.started = world_start.members, step, speeds, True
        started = WorldStarted(world_start, self.reason, self.urgent)
        self.forming, self.urgent, self._participants = False, False, ()
        actions: list[Action] = [SendMessage(name, world_start) for name in chosen]
        actions += [SendMessage(name, self._retirement(name)) for name in retired]
        # A worker that joined while the world was forming enters at the first step boundary.
        return [*actions, started, *self.update_world("workers joined meanwhile")]

    def _retirement(self, name: str) -> Stop:
        if self.members[name].leaving:
            return Stop(StopCause.RETIRED, "it asked to leave")
        del self.members[name]
        return Stop(StopCause.RETIRED, f"the target is {self.limits.target_workers} workers")

    def record_cost(self, name: str, cost: float) -> None:
        """Note the time that a worker needs for one micro-batch."""
        if name in self.members:
            self.members[name].cost = cost

    def _speeds(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return no speeds, for equal blocks, unless a worker straggles; then the measured speeds."""
        costs = [self.members[name].cost for name in names]
        if not all(costs) or max(costs) < STRAGGLER_RATIO * median_low(costs):
            return ()
        return tuple(round(1 / cost, 6) for cost in costs)

    def rebalance(self) -> list[Action]:
        """Move micro-batches away from a straggler if the gain justifies a rendezvous.

        On a machine that other programs use, the costs of equal workers go up and down without end. So each new
        distribution for the same workers is followed by twice the pause of the one before.
        """
        if not self.running or len(self.world) < 2 or any(name not in self.members for name in self.world):
            return []
        if self._checks_left_out:
            self._checks_left_out -= 1
            return []
        costs = [self.members[name].cost for name in self.world]
        speeds = self._speeds(self.world)
        if speeds == self.speeds or not all(costs):
            return []
        now = max(cost * len(block) for cost, block in zip(costs, self._blocks(self.speeds), strict=True))
        then = max(cost * len(block) for cost, block in zip(costs, self._blocks(speeds), strict=True))
        if then > REBALANCE_THRESHOLD * now:
            return []
        self._rebalance_pause = min(max(1, 2 * self._rebalance_pause), MAX_REBALANCE_PAUSE)
        self._checks_left_out = self._rebalance_pause
        slowest = self.world[costs.index(max(costs))]
        ratio = max(costs) / min(costs)
        reason = f"{slowest} is slow: {ratio:.1f}x the fastest" if speeds else "no worker is slow any more"
        return self._start_rendezvous(reason, urgent=False)

    def _blocks(self, speeds: tuple[float, ...]) -> tuple[range, ...]:
        return split_micro_batches(self.micro_batches, len(self.world), speeds or None)

    def worker_done(self, name: str, digest: str, step: int) -> bool:
        """Return True when every member of the world has applied the last step."""
        if name in self.members:
            member = self.members[name]
            member.done = digest
            member.progress = replace(member.progress, step=step)
        return not self.forming and all(self.members[n].done for n in self.world if n in self.members)


def _state_rank(progress: WorkerProgress) -> tuple[bool, Fence, int]:
    """Order states: live before stored; among live ones the newest world, then the newest step."""
    if progress.live:
        return True, progress.fence, progress.step
    return False, NO_FENCE, progress.restorable
