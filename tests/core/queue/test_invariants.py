"""What holds whatever comes: random queues, random workloads, random ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.queues import World, flavor, group, is_never_exceeded, local, pod_set, queue, quota, workload

from torchyard.api.objects import Object
from torchyard.core.queue.flavor_assigner import Mode
from torchyard.core.queue.preemption import Borrowers, targets
from torchyard.core.queue.resources import Amounts
from torchyard.core.queue.scheduler import Admit, Preempt

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
    made: list[Object] = [flavor("one"), flavor("two")]
    for name in QUEUES:
        in_cohort = draw(st.booleans())
        quotas = []
        for kind in ("one", "two"):
            nominal = draw(st.integers(0, 6))
            limits = {}
            if in_cohort and draw(st.booleans()):
                limits["borrowingLimit"] = draw(st.integers(0, 4))
            if in_cohort and draw(st.booleans()):
                limits["lendingLimit"] = draw(st.integers(0, nominal))
            quotas.append((kind, [quota("cpu", nominal, **limits)]))
        strategy = draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"]))
        spec: Any = {"queueingStrategy": strategy, "preemption": draw(preemption)}
        made.append(queue(name, group(*quotas), cohort="all" if in_cohort else "", **spec))
        made.append(local(name, name))
    return made


@st.composite
def jobs(draw: st.DrawFn, number: int, *, most_sets: int = 2) -> Object:
    sets = [
        pod_set(f"p{index}", count=draw(st.integers(1, 3)), cpu=draw(st.sampled_from(["500m", "1", "2"])))
        for index in range(draw(st.integers(1, most_sets)))
    ]
    return workload(
        f"w{number}",
        *sets,
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.integers(0, 3)),
        at=draw(st.integers(0, 30)),
    )


STEPS = st.lists(st.sampled_from(["come", "come", "come", "end", "round", "evict"]), min_size=1, max_size=30)


@settings(max_examples=25)
@given(st.data(), configurations(), STEPS)
def test_quota_is_never_exceeded(data: st.DataObject, configuration: list[Object], steps: list[str]) -> None:
    world = World(*configuration)
    preempted: list[str] = []
    for number, step in enumerate(steps):
        if step == "come":
            world.put(data.draw(jobs(number)))
        elif step == "end" and world.objects:
            world.finish(data.draw(st.sampled_from(sorted(world.objects))))
        elif step == "round":
            for one in world.round():
                preempted += [t.item.key[1] for t in one.targets] if isinstance(one, Preempt) else []
        elif step == "evict":
            for name in [one for one in preempted if one in world.objects]:
                world.give_back(name)
            preempted = []
        assert is_never_exceeded(world.book)


@settings(max_examples=30)
@given(st.data(), configurations(preemption=NO_PREEMPTION))
def test_nobody_starves_who_ever_fits(data: st.DataObject, configuration: list[Object]) -> None:
    """Everything that ends makes room: sooner or later all are admitted but those no queue is large enough for."""
    for one in configuration:
        one["spec"].pop("queueingStrategy", None)
    world = World(*configuration)
    for number in range(data.draw(st.integers(1, 25))):
        world.put(data.draw(jobs(number)))
    while world.settle():
        world.finish(min(world.holding()))
        while world.holding():
            world.finish(min(world.holding()))
            world.settle()
    book = world.book
    for pool in book.pools.values():
        assert not pool.holding
        for item in pool.waiting.values():
            assert pool.plan(item.shape).assign(pool.node).mode is Mode.NO_FIT


@settings(max_examples=40)
@given(st.data(), configurations())
def test_nobody_starves_however_late_quota_is_given_back(data: st.DataObject, configuration: list[Object]) -> None:
    for one in configuration:
        one["spec"].pop("queueingStrategy", None)
    world, late = World(*configuration), dict[str, None]()

    for number in range(data.draw(st.integers(1, 12))):
        world.put(data.draw(jobs(number, most_sets=1)))
        world.go_on(late, lambda: data.draw(st.booleans()), rounds=1000)
    world.go_on(late, lambda: True, rounds=1000)
    while world.holding():
        world.finish(min(world.holding()))
        world.go_on(late, lambda: True, rounds=1000)
    for pool in world.book.pools.values():
        for item in pool.waiting.values():
            assert pool.plan(item.shape).assign(pool.node).mode is Mode.NO_FIT


def usage_of(world: World) -> dict[str, Amounts]:
    return {
        node.name: {key: amount for key, amount in node.usage.items() if amount}
        for pool in world.book.pools.values()
        for node in (pool.node, pool.node.root)
    }


@settings(max_examples=25)
@given(st.data(), configurations())
def test_preemption_takes_nothing_it_does_not_need(data: st.DataObject, configuration: list[Object]) -> None:
    world = World(*configuration)
    for number in range(data.draw(st.integers(1, 15))):
        world.put(data.draw(jobs(number)))
    world.settle(evict=False)
    book = world.book
    for pool in book.pools.values():
        for item in list(pool.waiting.values()):
            assignment = pool.plan(item.shape).assign(pool.node)
            if assignment.mode is not Mode.PREEMPT:
                continue
            before = usage_of(world)
            chosen = targets(item, pool, assignment, Borrowers(book.neighbours))
            assert usage_of(world) == before, "looking changed the quotas"
            held = [(book.pools[one.item.place].node, one.item.held) for one in chosen]
            for node, amounts in held:
                node.remove(amounts)
            fits = all(amount <= pool.node.available(key) for key, amount in assignment.usage.items())
            assert fits or not chosen
            for spared in range(len(held)):
                node, amounts = held[spared]
                node.add(amounts)
                still = all(amount <= pool.node.available(key) for key, amount in assignment.usage.items())
                within = pool.node.parent is None or not still
                assert within or _must_not_borrow(pool, assignment.usage), "one target too many"
                node.remove(amounts)
            for node, amounts in held:
                node.add(amounts)


def _must_not_borrow(pool: Any, usage: Amounts) -> bool:
    """Reclaiming stops only when the queue needs nothing of others' any more."""
    return any(pool.node.usage.get(key, 0) + amount > pool.node.nominal(key) for key, amount in usage.items())


@settings(max_examples=25)
@given(st.data(), configurations())
def test_giving_back_restores_exactly(data: st.DataObject, configuration: list[Object]) -> None:
    world = World(*configuration)
    for number in range(data.draw(st.integers(1, 15))):
        world.put(data.draw(jobs(number)))
    world.book.refresh()
    empty = usage_of(world)
    world.settle(evict=False)
    for name in sorted(world.holding()):
        world.give_back(name)
    assert usage_of(world) == empty


@settings(max_examples=25)
@given(st.data(), configurations())
def test_the_order_is_the_same_however_they_arrive(data: st.DataObject, configuration: list[Object]) -> None:
    made = [data.draw(jobs(number)) for number in range(data.draw(st.integers(1, 15)))]

    def outcome(objects: list[Object]) -> list[list[str]]:
        world = World(*configuration, *objects)
        return [
            sorted(one.item.key[1] for one in world.round() if isinstance(one, Admit)) for _ in range(len(made) + 1)
        ]

    assert outcome(made) == outcome(data.draw(st.permutations(made)))


@settings(max_examples=25)
@given(st.data(), configurations())
def test_a_book_kept_up_to_date_is_the_book_made_anew(data: st.DataObject, configuration: list[Object]) -> None:
    world = World(*configuration)
    doors = {one["metadata"]["name"]: one for one in configuration if "clusterQueue" in one["spec"]}
    others = [one for one in configuration if "clusterQueue" not in one["spec"]]
    for number in range(data.draw(st.integers(1, 20))):
        world.put(data.draw(jobs(number)))
        if data.draw(st.booleans()):
            world.round()
        if world.objects and data.draw(st.integers(0, 3)) == 0:
            world.finish(data.draw(st.sampled_from(sorted(world.objects))))
        if data.draw(st.integers(0, 3)) == 0:
            name = data.draw(st.sampled_from(QUEUES))
            policy = data.draw(st.sampled_from(["None", "Hold", "gone"]))
            if policy == "gone" and doors.pop(name, None) is not None:
                world.book.drop("LocalQueue", ("default", name))
            elif policy != "gone":
                doors[name] = local(name, name, stopPolicy=policy)
                world.put(doors[name])
    fresh = World(*others, *doors.values(), *world.objects.values())
    fresh.book.refresh()
    world.book.refresh()
    assert usage_of(world) == usage_of(fresh)
    assert world.holding() == fresh.holding()
    assert world.book.pending + type(world.book.pending)() == fresh.book.pending + type(fresh.book.pending)()
    assert world.book.outside == fresh.book.outside
