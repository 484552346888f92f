"""Invariants of the scheduler for random queues, workloads and finishes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.queues import (
    QueueSimulation,
    flavor,
    group,
    is_within_quota,
    local,
    pod_set,
    preempted_names,
    queue,
    quota,
    workload,
)

from torchyard.api.objects import Object
from torchyard.core.queue.decisions import Admit
from torchyard.core.queue.flavor_assigner import FlavorAssignmentMode
from torchyard.core.queue.preemption import ReclaimCandidates, find_targets
from torchyard.core.queue.resources import FlavorResourceQuantities

POLICIES = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["LowerPriority", "Any"]),
        "borrowWithinCohort": st.fixed_dictionaries({"policy": st.sampled_from(["Never", "LowerPriority"])}),
    }
)
NO_PREEMPTION: st.SearchStrategy[Object] = st.just({})
QUEUES = ("qa", "qb", "qc")


@st.composite
def configurations(draw: st.DrawFn, *, preemption: st.SearchStrategy[Object] = POLICIES) -> list[Object]:
    objects: list[Object] = [flavor("one"), flavor("two")]
    for name in QUEUES:
        in_cohort = draw(st.booleans())
        quotas = []
        for flavor_name in ("one", "two"):
            nominal = draw(st.integers(0, 6))
            limits = {}
            if in_cohort and draw(st.booleans()):
                limits["borrowingLimit"] = draw(st.integers(0, 4))
            if in_cohort and draw(st.booleans()):
                limits["lendingLimit"] = draw(st.integers(0, nominal))
            quotas.append((flavor_name, [quota("cpu", nominal, **limits)]))
        strategy = draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"]))
        spec: Any = {"queueingStrategy": strategy, "preemption": draw(preemption)}
        objects.append(queue(name, group(*quotas), cohort="all" if in_cohort else "", **spec))
        objects.append(local(name, name))
    return objects


@st.composite
def jobs(draw: st.DrawFn, number: int, *, max_pod_sets: int = 2) -> Object:
    pod_sets = [
        pod_set(f"p{index}", count=draw(st.integers(1, 3)), cpu=draw(st.sampled_from(["500m", "1", "2"])))
        for index in range(draw(st.integers(1, max_pod_sets)))
    ]
    return workload(
        f"w{number}",
        *pod_sets,
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.integers(0, 3)),
        at=draw(st.integers(0, 30)),
    )


STEPS = st.lists(st.sampled_from(["create", "create", "create", "finish", "cycle", "release"]), min_size=1, max_size=30)


@settings(max_examples=25)
@given(st.data(), configurations(), STEPS)
def test_quota_is_never_exceeded(data: st.DataObject, configuration: list[Object], steps: list[str]) -> None:
    sim = QueueSimulation(*configuration)
    preempted: list[str] = []
    for number, step in enumerate(steps):
        if step == "create":
            sim.put(data.draw(jobs(number)))
        elif step == "finish" and sim.objects:
            sim.finish(data.draw(st.sampled_from(sorted(sim.objects))))
        elif step == "cycle":
            preempted += preempted_names(sim.run_cycle())
        elif step == "release":
            for name in [name for name in preempted if name in sim.objects]:
                sim.release(name)
            preempted = []
        assert is_within_quota(sim.state)


@settings(max_examples=30)
@given(st.data(), configurations(preemption=NO_PREEMPTION))
def test_every_workload_that_can_fit_is_admitted(data: st.DataObject, configuration: list[Object]) -> None:
    """Every finish frees quota, so in the end all are admitted for which a queue is large enough."""
    for obj in configuration:
        obj["spec"].pop("queueingStrategy", None)
    sim = QueueSimulation(*configuration)
    for number in range(data.draw(st.integers(1, 25))):
        sim.put(data.draw(jobs(number)))
    while sim.run_until_idle():
        sim.finish(min(sim.reserving()))
        while sim.reserving():
            sim.finish(min(sim.reserving()))
            sim.run_until_idle()
    state = sim.state
    for cq in state.cache.cluster_queues.values():
        assert not cq.reserving
        for info in cq.pending.values():
            assert cq.assigner_for(info.requirements).assign(cq.node).mode is FlavorAssignmentMode.NO_FIT


@settings(max_examples=40)
@given(st.data(), configurations())
def test_every_workload_that_can_fit_is_admitted_however_late_quota_is_released(
    data: st.DataObject, configuration: list[Object]
) -> None:
    for obj in configuration:
        obj["spec"].pop("queueingStrategy", None)
    sim, late = QueueSimulation(*configuration), dict[str, None]()

    for number in range(data.draw(st.integers(1, 12))):
        sim.put(data.draw(jobs(number, max_pod_sets=1)))
        sim.run_with_late_release(late, lambda: data.draw(st.booleans()), max_cycles=1000)
    sim.run_with_late_release(late, lambda: True, max_cycles=1000)
    while sim.reserving():
        sim.finish(min(sim.reserving()))
        sim.run_with_late_release(late, lambda: True, max_cycles=1000)
    for cq in sim.state.cache.cluster_queues.values():
        for info in cq.pending.values():
            assert cq.assigner_for(info.requirements).assign(cq.node).mode is FlavorAssignmentMode.NO_FIT


def usage_of(sim: QueueSimulation) -> dict[str, FlavorResourceQuantities]:
    return {
        node.name: {key: amount for key, amount in node.usage.items() if amount}
        for cq in sim.state.cache.cluster_queues.values()
        for node in (cq.node, cq.node.root)
    }


@settings(max_examples=25)
@given(st.data(), configurations())
def test_preemption_targets_are_minimal(data: st.DataObject, configuration: list[Object]) -> None:
    sim = QueueSimulation(*configuration)
    for number in range(data.draw(st.integers(1, 15))):
        sim.put(data.draw(jobs(number)))
    sim.run_until_idle(evict=False)
    state = sim.state
    for cq in state.cache.cluster_queues.values():
        for info in list(cq.pending.values()):
            assignment = cq.assigner_for(info.requirements).assign(cq.node)
            if assignment.mode is not FlavorAssignmentMode.PREEMPT:
                continue
            before = usage_of(sim)
            targets = find_targets(info, cq, assignment, ReclaimCandidates(state.cache.members)).targets
            assert usage_of(sim) == before, "the search changed the usage"
            usages = [(state.cache.cluster_queues[info.reserved_in].node, info.usage) for info, _ in targets]
            for node, usage in usages:
                node.remove_usage(usage)
            fits = all(amount <= cq.node.available(key) for key, amount in assignment.usage.items())
            assert fits or not targets
            for spared in range(len(usages)):
                node, usage = usages[spared]
                node.add_usage(usage)
                still_fits = all(amount <= cq.node.available(key) for key, amount in assignment.usage.items())
                is_needed = cq.node.parent is None or not still_fits
                assert is_needed or _must_not_borrow(cq, assignment.usage), "a target is not needed"
                node.remove_usage(usage)
            for node, usage in usages:
                node.add_usage(usage)


def _must_not_borrow(cq: Any, usage: FlavorResourceQuantities) -> bool:
    """Reclaim continues until the queue borrows nothing."""
    return any(cq.node.usage.get(key, 0) + amount > cq.node.nominal(key) for key, amount in usage.items())


@settings(max_examples=25)
@given(st.data(), configurations())
def test_releasing_all_quota_restores_the_usage(data: st.DataObject, configuration: list[Object]) -> None:
    sim = QueueSimulation(*configuration)
    for number in range(data.draw(st.integers(1, 15))):
        sim.put(data.draw(jobs(number)))
    sim.state.refresh()
    empty = usage_of(sim)
    sim.run_until_idle(evict=False)
    for name in sorted(sim.reserving()):
        sim.release(name)
    assert usage_of(sim) == empty


@settings(max_examples=25)
@given(st.data(), configurations())
def test_admission_order_does_not_depend_on_arrival_order(data: st.DataObject, configuration: list[Object]) -> None:
    workloads = [data.draw(jobs(number)) for number in range(data.draw(st.integers(1, 15)))]

    def outcome(objects: list[Object]) -> list[list[str]]:
        sim = QueueSimulation(*configuration, *objects)
        return [
            sorted(decision.info.key[1] for decision in sim.run_cycle() if isinstance(decision, Admit))
            for _ in range(len(workloads) + 1)
        ]

    assert outcome(workloads) == outcome(data.draw(st.permutations(workloads)))


@settings(max_examples=25)
@given(st.data(), configurations())
def test_updated_state_equals_a_rebuilt_state(data: st.DataObject, configuration: list[Object]) -> None:
    sim = QueueSimulation(*configuration)
    local_queues = {obj["metadata"]["name"]: obj for obj in configuration if "clusterQueue" in obj["spec"]}
    others = [obj for obj in configuration if "clusterQueue" not in obj["spec"]]
    for number in range(data.draw(st.integers(1, 20))):
        sim.put(data.draw(jobs(number)))
        if data.draw(st.booleans()):
            sim.run_cycle()
        if sim.objects and data.draw(st.integers(0, 3)) == 0:
            sim.finish(data.draw(st.sampled_from(sorted(sim.objects))))
        if data.draw(st.integers(0, 3)) == 0:
            name = data.draw(st.sampled_from(QUEUES))
            policy = data.draw(st.sampled_from(["None", "Hold", "deleted"]))
            if policy == "deleted" and local_queues.pop(name, None) is not None:
                sim.state.delete_local_queue(("default", name))
            elif policy != "deleted":
                local_queues[name] = local(name, name, stopPolicy=policy)
                sim.put(local_queues[name])
    fresh = QueueSimulation(*others, *local_queues.values(), *sim.objects.values())
    fresh.state.refresh()
    sim.state.refresh()
    assert usage_of(sim) == usage_of(fresh)
    assert sim.reserving() == fresh.reserving()
    assert (
        sim.state.pending.counts + type(sim.state.pending.counts)()
        == fresh.state.pending.counts + type(fresh.state.pending.counts)()
    )
    assert sim.state.pending.ineligible == fresh.state.pending.ineligible
