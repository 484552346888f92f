"""The membership rules, driven with simulated workers: no sockets, no clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.elastic.coordinator.membership import (
    Action,
    Membership,
    MembershipEvent,
    SendMessage,
    WorldLimits,
    WorldStarted,
)
from torchyard.elastic.wire import Fence, Hello, StartRendezvous, StartWorld, Stop, WorkerProgress


@dataclass
class Sim:
    """Workers that do what the messages say, one at a time, in an order the test chooses."""

    fleet: Membership
    standing: dict[str, WorkerProgress] = field(default_factory=dict)
    asked: dict[str, StartRendezvous] = field(default_factory=dict)
    began: list[WorldStarted] = field(default_factory=list)
    decided: list[MembershipEvent] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)

    def do(self, orders: list[Action]) -> None:
        for order in orders:
            if isinstance(order, WorldStarted):
                self.began.append(order)
            elif isinstance(order, MembershipEvent):
                self.decided.append(order)
            elif order.to in self.standing:
                self._deliver(order)

    def _deliver(self, order: SendMessage) -> None:
        name, message = order.to, order.message
        if isinstance(message, StartRendezvous):
            self.asked[name] = message
        elif isinstance(message, StartWorld):
            held = self.standing[name]
            if name in message.behind or name == message.leader:
                held = replace(held, step=message.step, live=True)
            assert held.live
            assert held.step == message.step, "everyone begins a world with the same model"
            self.standing[name] = replace(held, fence=message.fence)
        elif isinstance(message, Stop):
            self.stopped[name] = message.why
            del self.standing[name]
            self.do(self.fleet.lost(name, "went"))

    def join(self, name: str, restorable: int = 0) -> None:
        self.standing[name] = WorkerProgress(restorable=restorable)
        self.do(self.fleet.joined(Hello("j", "", name, standing=self.standing[name])))

    def kill(self, name: str) -> None:
        del self.standing[name]
        self.asked.pop(name, None)
        self.do(self.fleet.lost(name, "died"))

    def report(self, name: str) -> None:
        asked = self.asked.pop(name, None)
        if asked is not None and name in self.standing:
            self.do(self.fleet.reported(name, asked.fence, self.standing[name]))

    def settle(self) -> None:
        while self.asked:
            self.report(next(iter(self.asked)))

    def train(self, laggard: str = "") -> None:
        """One step of everybody in the world; one of them may die before it hears the result."""
        for name in self.fleet.world:
            if name != laggard and name in self.standing:
                self.standing[name] = replace(self.standing[name], step=self.standing[name].step + 1)


def sim(least: int = 1, want: int = 2, **more: int) -> Sim:
    return Sim(
        Membership(1, WorldLimits(least=least, most=more.get("most", 8), multiple_of=more.get("of", 1), want=want))
    )


def test_the_first_world_waits_for_everyone_wanted() -> None:
    world = sim(want=2)
    world.join("a")
    assert not world.asked
    world.join("b")
    world.settle()
    assert world.fleet.world == ("a", "b")
    assert world.began[0].go.behind == ("b",)
    assert world.began[0].go.restore


def test_when_not_everyone_comes_it_starts_with_enough() -> None:
    world = sim(least=1, want=3)
    world.join("a")
    world.do(world.fleet.start_anyway())
    world.settle()
    assert world.fleet.world == ("a",)


def test_survivors_roll_forward_to_the_newest_step_any_of_them_applied() -> None:
    world = sim(want=3)
    for name in "abc":
        world.join(name)
    world.settle()
    world.train()
    world.train(laggard="a")
    world.kill("c")
    assert all(asked.urgent for asked in world.asked.values())
    world.settle()
    go = world.began[-1].go
    assert (go.step, go.leader, go.behind, go.restore) == (2, "b", ("a",), False)


def test_a_joiner_is_taken_in_at_a_boundary_without_urgency() -> None:
    world = sim(want=3)
    world.fleet.started = True
    world.join("a")
    world.settle()
    world.train()
    world.join("b")
    assert not any(asked.urgent for asked in world.asked.values())
    world.settle()
    assert world.began[-1].go.behind == ("b",)
    assert world.fleet.world == ("a", "b")


def test_a_death_while_a_planned_change_waits_makes_it_urgent() -> None:
    world = sim(want=3)
    world.fleet.started = True
    world.join("a")
    world.settle()
    world.join("b")
    world.settle()
    world.join("c")
    world.report("c")
    world.kill("b")
    assert world.asked["a"].urgent
    world.settle()
    assert world.fleet.world == ("a", "c")


def test_below_the_least_number_training_pauses_and_resumes_with_state() -> None:
    world = sim(least=2, want=2)
    world.join("a")
    world.join("b")
    world.settle()
    world.train()
    world.kill("b")
    world.settle()
    assert world.decided[-1].reason == "Paused"
    world.join("c")
    world.settle()
    assert world.began[-1].go.step == 1
    assert world.began[-1].go.leader == "a"


def test_after_total_loss_the_newest_restorable_state_is_taken() -> None:
    world = sim(want=2)
    world.join("a")
    world.join("b")
    world.settle()
    world.train()
    world.kill("a")
    world.kill("b")
    world.join("c", restorable=0)
    world.join("d", restorable=1)
    world.settle()
    assert world.began[-1].go.step == 0 or world.began[-1].go.leader == "d"
    assert set(world.fleet.world) == {"c", "d"}


def test_a_worker_that_leaves_hands_over_at_the_boundary() -> None:
    world = sim(want=2)
    world.join("a")
    world.join("b")
    world.settle()
    world.do(world.fleet.leaving("a", "preempted"))
    world.settle()
    assert world.stopped == {"a": "retired"}
    assert world.fleet.world == ("b",)


def test_the_only_holder_of_state_stays_until_it_is_handed_over() -> None:
    world = sim(want=1)
    world.join("a")
    world.settle()
    world.train()
    world.do(world.fleet.leaving("a", "preempted"))
    assert "a" not in world.stopped
    world.join("b")
    world.settle()
    assert world.stopped == {"a": "retired"}
    assert world.standing["b"].step == 1


def test_scaling_down_retires_the_newest_and_up_takes_spares() -> None:
    world = sim(want=3)
    for name in "abc":
        world.join(name)
    world.settle()
    world.do(world.fleet.resize(replace(world.fleet.limits, want=1)))
    world.settle()
    assert set(world.stopped) == {"b", "c"}
    assert list(world.fleet.world) == ["a"]
    world.do(world.fleet.resize(replace(world.fleet.limits, want=2)))
    world.join("d")
    world.settle()
    assert list(world.fleet.world) == ["a", "d"]


def test_a_world_is_a_multiple_and_spares_stand_by() -> None:
    world = sim(want=4, of=2)
    world.fleet.started = True
    for name in "abc":
        world.join(name)
        world.settle()
    assert world.fleet.world == ("a", "b")
    world.kill("a")
    world.settle()
    assert world.fleet.world == ("b", "c")


def test_reports_and_complaints_of_an_older_fence_are_ignored() -> None:
    world = sim(want=1)
    world.join("a")
    world.settle()
    assert world.fleet.broken("a", Fence(0, 1), "old news") == []
    assert world.fleet.reported("a", Fence(0, 1), WorkerProgress()) == []
    assert world.fleet.running


def test_a_group_that_breaks_with_all_members_alive_is_formed_again() -> None:
    world = sim(want=2)
    world.join("a")
    world.join("b")
    world.settle()
    world.do(world.fleet.broken("a", world.fleet.fence, "connection reset"))
    world.settle()
    assert len(world.began) == 2


def test_a_restarted_coordinator_adopts_the_world_that_went_on_without_it() -> None:
    fleet = Membership(2, WorldLimits(want=2))
    fence = Fence(1, 7)
    for name in ("a", "b"):
        standing = WorkerProgress(fence, 40, live=True)
        assert fleet.joined(Hello("j", "", name, standing=standing, running=True, members=("a", "b"))) == []
    assert fleet.running
    assert fleet.fence == fence
    assert fleet.lost("b", "died")
    assert fleet.fence == Fence(2, 8)


def test_a_straggler_loses_micro_batches_and_the_others_gain_them() -> None:
    world = sim(want=2)
    world.fleet.micro_batches = 8
    world.join("a")
    world.join("b")
    world.settle()
    world.fleet.measured("a", 0.01)
    world.fleet.measured("b", 0.03)
    world.do(world.fleet.rebalance())
    world.settle()
    assert world.began[-1].go.speeds == pytest.approx((100.0, 33.333333))
    assert world.fleet.rebalance() == []


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_whatever_happens_nothing_applied_is_lost_while_its_holder_lives(seed: int) -> None:
    rng = random.Random(seed)
    world = sim(least=rng.randint(1, 2), want=rng.randint(2, 5), of=rng.choice([1, 1, 2]))
    born = 0
    for _ in range(rng.randint(5, 60)):
        match rng.choice(["join", "kill", "report", "report", "train", "train", "lag", "leave", "broken", "resize"]):
            case "join" if len(world.standing) < 7:
                world.join(f"w{born}")
                born += 1
            case "kill" if world.standing:
                world.kill(rng.choice(sorted(world.standing)))
            case "report" if world.asked:
                world.report(rng.choice(sorted(world.asked)))
            case "train" if world.fleet.running:
                world.train()
            case "lag" if world.fleet.running and len(world.fleet.world) > 1:
                laggard, victim = rng.sample(world.fleet.world, 2)
                world.train(laggard)
                world.kill(victim)
            case "leave" if world.standing:
                world.do(world.fleet.leaving(rng.choice(sorted(world.standing)), "asked"))
            case "broken" if world.fleet.running:
                world.do(world.fleet.broken(world.fleet.world[0], world.fleet.fence, "reset"))
            case "resize":
                world.do(world.fleet.resize(replace(world.fleet.limits, want=rng.randint(2, 5))))
            case _:
                pass
        newest = max((s.step for s in world.standing.values() if s.live and s.fence == world.fleet.fence), default=0)
        assert world.fleet.step <= max(newest, world.fleet.step)
    fences = [began.go.fence for began in world.began]
    assert fences == sorted(set(fences))
    for _ in range(4):
        world.join(f"w{born}")
        born += 1
    world.settle()
    world.do(world.fleet.start_anyway())
    world.settle()
    assert world.fleet.running, "enough workers always end in a running world"
    best = max(s.step for s in world.standing.values())
    assert all(world.standing[name].step == best for name in world.fleet.world)
