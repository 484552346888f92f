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
class Simulation:
    """Workers that react to messages one at a time, in an order that the test chooses."""

    membership: Membership
    progress: dict[str, WorkerProgress] = field(default_factory=dict)
    requests: dict[str, StartRendezvous] = field(default_factory=dict)
    worlds: list[WorldStarted] = field(default_factory=list)
    events: list[MembershipEvent] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)

    def execute(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, WorldStarted):
                self.worlds.append(action)
            elif isinstance(action, MembershipEvent):
                self.events.append(action)
            elif action.to in self.progress:
                self._deliver(action)

    def _deliver(self, action: SendMessage) -> None:
        name, message = action.to, action.message
        if isinstance(message, StartRendezvous):
            self.requests[name] = message
        elif isinstance(message, StartWorld):
            progress = self.progress[name]
            if name in message.behind or name == message.leader:
                progress = replace(progress, step=message.step, live=True)
            assert progress.live
            assert progress.step == message.step, "all members begin a world with the same model"
            self.progress[name] = replace(progress, fence=message.fence)
        elif isinstance(message, Stop):
            self.stopped[name] = message.cause
            del self.progress[name]
            self.execute(self.membership.worker_lost(name, "went"))

    def join(self, name: str, restorable: int = 0) -> None:
        self.progress[name] = WorkerProgress(restorable=restorable)
        self.execute(self.membership.worker_joined(Hello(name, progress=self.progress[name])))

    def kill(self, name: str) -> None:
        del self.progress[name]
        self.requests.pop(name, None)
        self.execute(self.membership.worker_lost(name, "died"))

    def report(self, name: str) -> None:
        request = self.requests.pop(name, None)
        if request is not None and name in self.progress:
            self.execute(self.membership.worker_reported(name, request.fence, self.progress[name]))

    def report_all(self) -> None:
        while self.requests:
            self.report(next(iter(self.requests)))

    def train(self, straggler: str = "") -> None:
        """Apply one step on all members of the world, except on a straggler."""
        for name in self.membership.world:
            if name != straggler and name in self.progress:
                self.progress[name] = replace(self.progress[name], step=self.progress[name].step + 1)


def create_simulation(min_workers: int = 1, target_workers: int = 2, **more: int) -> Simulation:
    return Simulation(
        Membership(
            1,
            WorldLimits(
                min_workers=min_workers,
                max_workers=more.get("most", 8),
                multiple_of=more.get("of", 1),
                target_workers=target_workers,
            ),
        )
    )


def test_the_first_world_waits_for_the_target_number_of_workers() -> None:
    simulation = create_simulation(target_workers=2)
    simulation.join("a")
    assert not simulation.requests
    simulation.join("b")
    simulation.report_all()
    assert simulation.membership.world == ("a", "b")
    assert simulation.worlds[0].world_start.behind == ("b",)
    assert simulation.worlds[0].world_start.restore


def test_a_job_starts_without_missing_workers_when_enough_are_connected() -> None:
    simulation = create_simulation(min_workers=1, target_workers=3)
    simulation.join("a")
    simulation.execute(simulation.membership.start_without_missing())
    simulation.report_all()
    assert simulation.membership.world == ("a",)


def test_survivors_roll_forward_to_the_newest_step_any_of_them_applied() -> None:
    simulation = create_simulation(target_workers=3)
    for name in "abc":
        simulation.join(name)
    simulation.report_all()
    simulation.train()
    simulation.train(straggler="a")
    simulation.kill("c")
    assert all(request.urgent for request in simulation.requests.values())
    simulation.report_all()
    go = simulation.worlds[-1].world_start
    assert (go.step, go.leader, go.behind, go.restore) == (2, "b", ("a",), False)


def test_a_new_worker_enters_at_a_step_boundary() -> None:
    simulation = create_simulation(target_workers=3)
    simulation.membership.started = True
    simulation.join("a")
    simulation.report_all()
    simulation.train()
    simulation.join("b")
    assert not any(request.urgent for request in simulation.requests.values())
    simulation.report_all()
    assert simulation.worlds[-1].world_start.behind == ("b",)
    assert simulation.membership.world == ("a", "b")


def test_a_death_makes_a_planned_rendezvous_urgent() -> None:
    simulation = create_simulation(target_workers=3)
    simulation.membership.started = True
    simulation.join("a")
    simulation.report_all()
    simulation.join("b")
    simulation.report_all()
    simulation.join("c")
    simulation.report("c")
    simulation.kill("b")
    assert simulation.requests["a"].urgent
    simulation.report_all()
    assert simulation.membership.world == ("a", "c")


def test_training_pauses_below_the_minimum_and_resumes_with_its_state() -> None:
    simulation = create_simulation(min_workers=2, target_workers=2)
    simulation.join("a")
    simulation.join("b")
    simulation.report_all()
    simulation.train()
    simulation.kill("b")
    simulation.report_all()
    assert simulation.events[-1].reason == "Paused"
    simulation.join("c")
    simulation.report_all()
    assert simulation.worlds[-1].world_start.step == 1
    assert simulation.worlds[-1].world_start.leader == "a"


def test_after_the_loss_of_all_workers_the_newest_restorable_state_is_used() -> None:
    simulation = create_simulation(target_workers=2)
    simulation.join("a")
    simulation.join("b")
    simulation.report_all()
    simulation.train()
    simulation.kill("a")
    simulation.kill("b")
    simulation.join("c", restorable=0)
    simulation.join("d", restorable=1)
    simulation.report_all()
    assert simulation.worlds[-1].world_start.step == 0 or simulation.worlds[-1].world_start.leader == "d"
    assert set(simulation.membership.world) == {"c", "d"}


def test_a_leaving_worker_hands_over_at_the_step_boundary() -> None:
    simulation = create_simulation(target_workers=2)
    simulation.join("a")
    simulation.join("b")
    simulation.report_all()
    simulation.execute(simulation.membership.worker_leaving("a", "preempted"))
    simulation.report_all()
    assert simulation.stopped == {"a": "retired"}
    assert simulation.membership.world == ("b",)


def test_the_only_worker_with_state_stays_until_another_has_it() -> None:
    simulation = create_simulation(target_workers=1)
    simulation.join("a")
    simulation.report_all()
    simulation.train()
    simulation.execute(simulation.membership.worker_leaving("a", "preempted"))
    assert "a" not in simulation.stopped
    simulation.join("b")
    simulation.report_all()
    assert simulation.stopped == {"a": "retired"}
    assert simulation.progress["b"].step == 1


def test_scaling_down_retires_the_newest_workers_and_scaling_up_adds_spare_ones() -> None:
    simulation = create_simulation(target_workers=3)
    for name in "abc":
        simulation.join(name)
    simulation.report_all()
    simulation.execute(simulation.membership.set_limits(replace(simulation.membership.limits, target_workers=1)))
    simulation.report_all()
    assert set(simulation.stopped) == {"b", "c"}
    assert list(simulation.membership.world) == ["a"]
    simulation.execute(simulation.membership.set_limits(replace(simulation.membership.limits, target_workers=2)))
    simulation.join("d")
    simulation.report_all()
    assert list(simulation.membership.world) == ["a", "d"]


def test_a_world_has_a_multiple_of_workers_and_spare_ones_stand_by() -> None:
    simulation = create_simulation(target_workers=4, of=2)
    simulation.membership.started = True
    for name in "abc":
        simulation.join(name)
        simulation.report_all()
    assert simulation.membership.world == ("a", "b")
    simulation.kill("a")
    simulation.report_all()
    assert simulation.membership.world == ("b", "c")


def test_messages_of_an_older_fence_are_ignored() -> None:
    simulation = create_simulation(target_workers=1)
    simulation.join("a")
    simulation.report_all()
    assert simulation.membership.group_failed("a", Fence(0, 1), "old news") == []
    assert simulation.membership.worker_reported("a", Fence(0, 1), WorkerProgress()) == []
    assert simulation.membership.running


def test_a_group_that_breaks_with_all_members_alive_is_formed_again() -> None:
    simulation = create_simulation(target_workers=2)
    simulation.join("a")
    simulation.join("b")
    simulation.report_all()
    simulation.execute(simulation.membership.group_failed("a", simulation.membership.fence, "connection reset"))
    simulation.report_all()
    assert len(simulation.worlds) == 2


def test_a_restarted_coordinator_adopts_the_world_that_went_on_without_it() -> None:
    membership = Membership(2, WorldLimits(target_workers=2))
    fence = Fence(1, 7)
    for name in ("a", "b"):
        progress = WorkerProgress(fence, 40, live=True)
        assert membership.worker_joined(Hello(name, progress=progress, running=True, members=("a", "b"))) == []
    assert membership.running
    assert membership.fence == fence
    assert membership.worker_lost("b", "died")
    assert membership.fence == Fence(2, 8)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_coordinator_without_the_ledger_goes_on_with_the_state_of_a_worker_that_has_left_its_world(
    first: str,
) -> None:
    """The pod of the coordinator was replaced: `a` is new, and `b` waits for a rendezvous newer than its world."""
    simulation = Simulation(Membership(1, WorldLimits(max_workers=4, target_workers=4, start_workers=2)))
    left = WorkerProgress(Fence(1, 16), 114, live=True)
    simulation.progress["b"] = left
    for name in (first, "b" if first == "a" else "a"):
        if name == "b":
            simulation.execute(simulation.membership.worker_joined(Hello("b", progress=left, members=("a", "b"))))
        else:
            simulation.join("a")
    assert simulation.requests["b"].fence > Fence(1, 16)
    simulation.report_all()
    start = simulation.worlds[-1].world_start
    assert (start.leader, start.step, set(start.members)) == ("b", 114, {"a", "b"})


def test_a_worker_with_a_newer_world_joins_a_rendezvous_under_way() -> None:
    simulation = Simulation(Membership(1, WorldLimits(max_workers=4, target_workers=4, start_workers=1)))
    simulation.join("a")
    left = simulation.progress["b"] = WorkerProgress(Fence(3, 16), 114, live=True)
    simulation.execute(simulation.membership.worker_joined(Hello("b", progress=left, members=("a", "b"))))
    assert simulation.requests["b"].fence > Fence(3, 16)
    simulation.report_all()
    assert simulation.worlds[-1].world_start.step == 114


def test_the_first_world_waits_for_as_many_workers_as_there_are_pods_and_later_ones_for_no_more_than_the_least() -> (
    None
):
    simulation = Simulation(Membership(1, WorldLimits(max_workers=4, target_workers=4, start_workers=2)))
    simulation.join("a")
    assert not simulation.requests
    for name in ("b", "c"):
        simulation.join(name)
        simulation.report_all()
    assert [len(world.world_start.members) for world in simulation.worlds] == [2, 3]


def test_scaling_retires_nobody_while_members_of_an_adopted_world_are_missing() -> None:
    membership = Membership(2, WorldLimits(target_workers=3))
    membership.adopt(Fence(1, 7), ("a", "b"))
    for name in ("c", "d"):
        assert membership.worker_joined(Hello(name)) == []
    assert membership.set_limits(WorldLimits(target_workers=2)) == []
    actions = membership.workers_missing(["a", "b"], "did not come back")
    started = {action.to for action in actions if isinstance(action, SendMessage)}
    assert started == {"c", "d"}, "the workers that are there go on"


def _restart_with_a_joiner_first() -> Simulation:
    """The world of a, b and d goes on without a coordinator; d is replaced, and the new d connects first."""
    simulation = Simulation(Membership(2, WorldLimits(target_workers=3)))
    simulation.membership.adopt(Fence(1, 7), ("a", "b", "d"))
    simulation.join("d")
    simulation.report_all()
    assert not simulation.worlds, "members with live state may return"
    return simulation


def test_a_restarted_coordinator_waits_for_live_members_when_a_joiner_connects_first() -> None:
    simulation = _restart_with_a_joiner_first()
    for name in ("a", "b"):
        progress = simulation.progress[name] = WorkerProgress(Fence(1, 7), 1000, live=True)
        hello = Hello(name, progress=progress, running=True, members=("a", "b", "d"))
        simulation.execute(simulation.membership.worker_joined(hello))
        simulation.report_all()
    start = simulation.worlds[-1].world_start
    assert simulation.worlds[0].world_start.step == start.step == 1000
    assert (set(start.members), start.restore) == ({"a", "b", "d"}, False)


def test_a_joiner_starts_alone_when_no_live_member_returns() -> None:
    simulation = _restart_with_a_joiner_first()
    simulation.execute(simulation.membership.workers_missing(["a"], "died"))
    assert not simulation.worlds
    simulation.execute(simulation.membership.workers_missing(["b"], "died"))
    simulation.report_all()
    assert simulation.membership.world == ("d",)
    assert simulation.worlds[-1].world_start.restore


def test_a_report_to_a_rendezvous_of_a_dead_incarnation_starts_another_one() -> None:
    """The member reconnected before it left its world: it waits for a rendezvous that nobody completes."""
    membership = Membership(2, WorldLimits(target_workers=2))
    progress = WorkerProgress(Fence(1, 7), 40, live=True)
    for name in ("a", "b"):
        membership.worker_joined(Hello(name, progress=progress, running=True, members=("a", "b")))
    actions = membership.worker_reported("a", Fence(1, 8), replace(progress, step=41))
    message = StartRendezvous(Fence(2, 8), True, "a has left the world")
    assert actions == [SendMessage("a", message), SendMessage("b", message)]
    for name, step in (("a", 41), ("b", 40)):
        actions = membership.worker_reported(name, Fence(2, 8), replace(progress, step=step))
    assert membership.running
    assert membership.step == 41
    assert membership.worker_reported("a", Fence(1, 8), progress) == []


def test_a_straggler_loses_micro_batches_and_the_others_gain_them() -> None:
    simulation = create_simulation(target_workers=2)
    simulation.membership.micro_batches = 8
    simulation.join("a")
    simulation.join("b")
    simulation.report_all()
    simulation.membership.record_cost("a", 0.01)
    simulation.membership.record_cost("b", 0.03)
    simulation.execute(simulation.membership.rebalance())
    simulation.report_all()
    assert simulation.worlds[-1].world_start.speeds == pytest.approx((100.0, 33.333333))
    assert simulation.membership.rebalance() == []


def test_costs_that_go_up_and_down_form_ever_fewer_worlds_until_the_workers_change() -> None:
    simulation = create_simulation(target_workers=3)
    simulation.membership.micro_batches = 12
    for name in ("a", "b", "c"):
        simulation.join(name)
    simulation.report_all()

    def worlds_of(checks: int) -> int:
        before = len(simulation.worlds)
        for _ in range(checks):
            speeds = simulation.membership.speeds
            # the worker that was slow is fast, and another one is slow
            costs = (0.01, 0.03) if speeds and speeds[0] < speeds[1] else (0.03, 0.01)
            for name, cost in zip(("a", "b"), costs, strict=True):
                simulation.membership.record_cost(name, cost)
            simulation.membership.record_cost("c", 0.01)
            simulation.execute(simulation.membership.rebalance())
            simulation.report_all()
        return len(simulation.worlds) - before

    assert worlds_of(100) == 7  # with pauses of 1, 2, 4, 8, 16 and 32 checks between them
    assert worlds_of(20) == 0
    simulation.kill("c")
    simulation.report_all()
    assert worlds_of(1) == 1


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_no_applied_step_is_lost_while_a_worker_that_applied_it_lives(seed: int) -> None:
    rng = random.Random(seed)
    simulation = create_simulation(
        min_workers=rng.randint(1, 2), target_workers=rng.randint(2, 5), of=rng.choice([1, 1, 2])
    )
    count = 0
    for _ in range(rng.randint(5, 60)):
        match rng.choice(["join", "kill", "report", "report", "train", "train", "lag", "leave", "broken", "resize"]):
            case "join" if len(simulation.progress) < 7:
                simulation.join(f"w{count}")
                count += 1
            case "kill" if simulation.progress:
                simulation.kill(rng.choice(sorted(simulation.progress)))
            case "report" if simulation.requests:
                simulation.report(rng.choice(sorted(simulation.requests)))
            case "train" if simulation.membership.running:
                simulation.train()
            case "lag" if simulation.membership.running and len(simulation.membership.world) > 1:
                straggler, victim = rng.sample(simulation.membership.world, 2)
                simulation.train(straggler)
                simulation.kill(victim)
            case "leave" if simulation.progress:
                simulation.execute(
                    simulation.membership.worker_leaving(rng.choice(sorted(simulation.progress)), "asked")
                )
            case "broken" if simulation.membership.running:
                simulation.execute(
                    simulation.membership.group_failed(
                        simulation.membership.world[0], simulation.membership.fence, "reset"
                    )
                )
            case "resize":
                simulation.execute(
                    simulation.membership.set_limits(
                        replace(simulation.membership.limits, target_workers=rng.randint(2, 5))
                    )
                )
            case _:
                pass
        if simulation.membership.running:
            newest = max((s.step for s in simulation.progress.values() if s.live), default=0)
            assert simulation.membership.step <= newest
            members = [simulation.progress[name] for name in simulation.membership.world if name in simulation.progress]
            assert newest == max((s.step for s in members if s.live), default=0)
    fences = [world.world_start.fence for world in simulation.worlds]
    assert fences == sorted(set(fences))
    for _ in range(4):
        simulation.join(f"w{count}")
        count += 1
    simulation.report_all()
    simulation.execute(simulation.membership.start_without_missing())
    simulation.report_all()
    assert simulation.membership.running, "enough workers always end in a running world"
    best = max(s.step for s in simulation.progress.values())
    assert all(simulation.progress[name].step == best for name in simulation.membership.world)
