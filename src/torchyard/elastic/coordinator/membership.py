"""Who is in the world: facts go in, messages to send come out. Pure: no clock, no socket, no disk.

A world is named by its fence. It ends with `Reform`; every member reports what it holds; when all have, `Go` begins the
next one from the newest state that any of them holds. Nothing a worker applied is ever taken back while one that
applied it lives (the roll-forward rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from torchyard.elastic.sampler import shares
from torchyard.elastic.wire import NO_FENCE, Fence, Hello, Message, StartRendezvous, StartWorld, Stop, WorkerProgress

STRAGGLES_AT = 1.3
"""A worker this much slower than the median loses micro-batches."""
GAIN_WORTH_A_CHANGE = 0.9
"""A new share-out must make the slowest block at least this much shorter."""


@dataclass(frozen=True, slots=True)
class WorldLimits:
    """How many workers may make up a world. `most` is also bounded by the number of micro-batches."""

    least: int = 1
    most: int = 1 << 30
    multiple_of: int = 1
    want: int = 1


@dataclass(slots=True)
class Member:
    name: str
    standing: WorkerProgress
    seniority: int
    leaving: bool = False
    done: str = ""
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class SendMessage:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class WorldStarted:
    """A world began: for the ledger and the event log."""

    go: StartWorld
    reason: str
    urgent: bool


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    reason: str
    message: str


Action = SendMessage | WorldStarted | MembershipEvent


@dataclass
class Membership:
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
    awaited: set[str] = field(default_factory=set)
    _summoned: tuple[str, ...] = ()
    _unheard: set[str] = field(default_factory=set)
    """Those summoned who have not reported yet; kept as a set, since thousands report one by one."""
    _arrivals: int = 0

    @property
    def running(self) -> bool:
        return bool(self.world) and not self.forming

    def adopt(self, fence: Fence, world: tuple[str, ...]) -> None:
        """Take over a world from an earlier incarnation: it goes on training while its members return.

        Until they have, or are known to be gone, nothing is changed: a second world beside it would fork the lineage.
        """
        self.fence, self.world, self.started = fence, world, True
        self.awaited = set(world) - set(self.members)

    def joined(self, hello: Hello) -> list[Action]:
        """A worker has connected, or has come back."""
        self._arrivals += 1
        name = hello.name
        self.members[name] = Member(name, hello.standing, self._arrivals, done=hello.done)
        self.step = max(self.step, hello.standing.step if hello.standing.live else 0)
        self.awaited.discard(name)
        if hello.running and hello.standing.fence > self.fence:
            self.adopt(hello.standing.fence, hello.members)
        if hello.running and hello.standing.fence == self.fence and name in self.world and not self.forming:
            return self.consider("the world is complete again")
        if self.forming and name in self._summoned:
            return [SendMessage(name, StartRendezvous(self.fence, self.urgent, self.reason))]
        if name in self.world and not self.forming:
            # It was in this world and is no longer: the others wait for it in vain.
            return self._reform(f"{name} lost its place in the world", urgent=True)
        if self.forming and not self._unheard:
            return self._reform(self.reason, urgent=self.urgent)  # paused for want of workers until now
        return self.consider(f"{name} joined")

    def lost(self, name: str, why: str) -> list[Action]:
        if self.members.pop(name, None) is None:
            return []
        if name in (self._summoned if self.forming else self.world):
            return self._reform(f"{name} {why}", urgent=True)
        return []

    def vanished(self, names: Sequence[str], why: str) -> list[Action]:
        """Members of an adopted world that will not come back."""
        gone = [name for name in names if name in self.awaited]
        self.awaited -= set(gone)
        if not gone or self.forming:
            return []
        return self._reform(f"{', '.join(gone)} {why}", urgent=True)

    def broken(self, name: str, fence: Fence, why: str) -> list[Action]:
        if fence != self.fence or self.forming:
            return []
        return self._reform(f"{name} lost the group: {why}", urgent=True)

    def leaving(self, name: str, why: str) -> list[Action]:
        if name not in self.members or self.members[name].leaving:
            return []
        self.members[name].leaving = True
        if name not in self.world:
            return [SendMessage(name, Stop("retired", why))]
        return self.consider(f"{name} leaves: {why}")

    def resize(self, limits: WorldLimits) -> list[Action]:
        self.limits = limits
        spare = sorted((m for m in self.members.values() if m.name not in self.world), key=lambda m: m.seniority)
        surplus = [] if self.forming else spare[max(0, limits.want - len(self.world)) :]
        for member in surplus:
            member.leaving = True
        orders: list[Action] = [
            SendMessage(m.name, Stop("retired", f"{limits.want} workers are wanted")) for m in surplus
        ]
        return orders + self.consider(f"{limits.want} workers wanted")

    def consider(self, reason: str) -> list[Action]:
        """Change the world at a step boundary if it should look different. Never disturbs a change under way."""
        needed = self.limits.least if self.started else min(self.limits.want, self.limits.most)
        if self.forming or self.awaited or len(self.members) < needed:
            return []
        chosen = self._choose()
        if len(chosen) < needed or set(chosen) == set(self.world):
            return []
        return self._reform(reason, urgent=False)

    def start_anyway(self) -> list[Action]:
        """The wait for a full start is over: begin with what is there, if that is enough."""
        if self.started or self.forming or len(self._choose()) < self.limits.least:
            return []
        self.started = True
        return self._reform("not every worker came in time", urgent=False)

    def _choose(self) -> list[str]:
        """The oldest stay: they hold state. Spare workers stand by."""
        present = [member for member in self.members.values() if not member.leaving]
        inside = set(self.world)
        present.sort(key=lambda member: (member.name not in inside, member.seniority))
        room = min(self.limits.want, self.limits.most, self.micro_batches)
        room = min(room, len(present)) // self.limits.multiple_of * self.limits.multiple_of
        return [member.name for member in present[:room]]

    def _reform(self, reason: str, *, urgent: bool) -> list[Action]:
        chosen = self._choose()
        everyone = tuple(dict.fromkeys([*self.world, *chosen]))
        self._summoned = tuple(name for name in everyone if name in self.members)
        # A peer that has left the world waits for `Go` in any case; those still inside must not wait for it.
        urgent = urgent or (self.forming and self.urgent)
        self.fence = Fence(self.incarnation, self.fence.generation + 1)
        self.forming, self.urgent, self.reason = True, urgent, reason
        self._unheard = set(self._summoned)
        news = StartRendezvous(self.fence, urgent, reason)
        return [SendMessage(name, news) for name in self._summoned]

    def reported(self, name: str, fence: Fence, standing: WorkerProgress) -> list[Action]:
        member = self.members.get(name)
        if member is None or fence != self.fence or not self.forming:
            return []
        member.standing = standing
        self._unheard.discard(name)
        return [] if self._unheard else self._go()

    def _go(self) -> list[Action]:
        """All have reported: begin the next world, or wait for enough workers."""
        called = set(self._summoned)
        chosen = [name for name in self._choose() if name in called]
        if len(chosen) < self.limits.least:
            if len(self._choose()) >= self.limits.least:
                return self._reform(self.reason, urgent=self.urgent)
            return [
                MembershipEvent("Paused", f"{len(chosen)} workers are here, at least {self.limits.least} are needed")
            ]
        # Those who leave report too: if only they hold the newest state, they stay for one more world and hand it over.
        newest = max(_worth(self.members[name].standing) for name in self._summoned)
        if all(_worth(self.members[name].standing) != newest for name in chosen):
            chosen.append(next(n for n in self._summoned if _worth(self.members[n].standing) == newest))
        leader = next(name for name in chosen if _worth(self.members[name].standing) == newest)
        best = self.members[leader].standing
        step = best.step if best.live else best.restorable
        current = {n for n in chosen if best.live and _worth(self.members[n].standing) == newest}
        behind = tuple(name for name in chosen if name != leader and name not in current)
        speeds = self._speeds(chosen)
        go = StartWorld(self.fence, tuple(chosen), step, leader, behind, restore=not best.live, speeds=speeds)
        staying = set(chosen)
        retired = [name for name in self._summoned if name not in staying]
        self.world, self.step, self.speeds, self.started = go.members, step, speeds, True
        began = WorldStarted(go, self.reason, self.urgent)
        self.forming, self.urgent, self._summoned = False, False, ()
        orders: list[Action] = [SendMessage(name, go) for name in chosen]
        orders += [SendMessage(name, self._parting(name)) for name in retired]
        # Whoever came while the world was forming is taken in at its first boundary.
        return [*orders, began, *self.consider("workers arrived meanwhile")]

    def _parting(self, name: str) -> Stop:
        if self.members[name].leaving:
            return Stop("retired", "as it asked")
        del self.members[name]
        return Stop("retired", f"{self.limits.want} workers are wanted")

    def measured(self, name: str, cost: float) -> None:
        if name in self.members:
            self.members[name].cost = cost

    def _speeds(self, names: Sequence[str]) -> tuple[float, ...]:
        """Even shares unless somebody straggles: then shares follow measured speed."""
        costs = [self.members[name].cost for name in names]
        if not all(costs) or max(costs) < STRAGGLES_AT * median_low(costs):
            return ()
        return tuple(round(1 / cost, 6) for cost in costs)

    def rebalance(self) -> list[Action]:
        """Shift micro-batches away from a straggler, if that is worth a change."""
        if not self.running or len(self.world) < 2 or any(name not in self.members for name in self.world):
            return []
        costs = [self.members[name].cost for name in self.world]
        speeds = self._speeds(self.world)
        if speeds == self.speeds or not all(costs):
            return []
        now = max(cost * len(block) for cost, block in zip(costs, self._blocks(self.speeds), strict=True))
        then = max(cost * len(block) for cost, block in zip(costs, self._blocks(speeds), strict=True))
        if then > GAIN_WORTH_A_CHANGE * now:
            return []
        slowest = self.world[costs.index(max(costs))]
        return self._reform(f"{slowest} is slow: {max(costs) / min(costs):.1f}x the fastest", urgent=False)

    def _blocks(self, speeds: tuple[float, ...]) -> tuple[range, ...]:
        return shares(self.micro_batches, len(self.world), speeds or None)

    def done(self, name: str, digest: str, step: int) -> bool:
        """True when every member of the world has finished the last step."""
        if name in self.members:
            member = self.members[name]
            member.done = digest
            member.standing = replace(member.standing, step=step)
        return not self.forming and all(self.members[n].done for n in self.world if n in self.members)


def _worth(standing: WorkerProgress) -> tuple[bool, Fence, int]:
    """Live state beats stored state; among live ones the newest world, then the newest step."""
    if standing.live:
        return True, standing.fence, standing.step
    return False, NO_FENCE, standing.restorable
