"""Admission fair sharing: LocalQueues that consumed less come first in their ClusterQueue."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue.admission_fair_sharing import LocalQueueUsage
from torchyard.core.queue.settings import AdmissionFairSharing, QueueSettings
from torchyard.core.queue.specs import parse_weight

USAGE_BASED = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
HALF_LIFE = 100.0
SETTINGS = AdmissionFairSharing(half_life=HALF_LIFE, sampling_interval=HALF_LIFE)


def simulation(*objects: Any, **spec: Any) -> QueueSimulation:
    settings = QueueSettings(admission_fair_sharing=SETTINGS)
    return QueueSimulation(flavor(), queue("team", cpu=1, **spec), *objects, settings=settings)


def run_all(sim: QueueSimulation, names: set[str]) -> list[str]:
    """One after the other; the order in which they were admitted."""
    order: list[str] = []
    while len(order) < len(names):
        (name,) = sim.run_until_idle()
        order.append(name)
        sim.finish(name)
    return order


def test_local_queues_take_turns_although_one_was_first() -> None:
    sim = simulation(local("a"), local("b"), **USAGE_BASED)
    names = {f"{queue}{number}" for queue in "ab" for number in range(3)}
    sim.put(*(workload(name, queue=name[0], at=10 * (name[0] == "b") + int(name[1])) for name in names))
    assert run_all(sim, names) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_weight_of_a_local_queue_divides_what_it_consumed() -> None:
    sim = simulation(local("a", fairSharing={"weight": 2}), local("b"), **USAGE_BASED)
    names = {f"{queue}{number}" for queue in "ab" for number in range(4)}
    sim.put(*(workload(name, queue=name[0], at=10 * (name[0] == "b") + int(name[1])) for name in names))
    assert "".join(name[0] for name in run_all(sim, names)) == "abaaba" + "bb"


def test_order_is_by_priority_and_age_without_the_admission_mode() -> None:
    sim = simulation(local("a"), local("b"))
    names = {"a0", "a1", "b0"}
    sim.put(*(workload(name, queue=name[0], at=10 * (name[0] == "b") + int(name[1])) for name in names))
    assert run_all(sim, names) == ["a0", "a1", "b0"]


def test_consumption_decays_with_the_half_life() -> None:
    usage, key = LocalQueueUsage(SETTINGS), ("default", "a")
    usage.sample(key, {"cpu": 4000}, now=0)
    assert usage.consumed_resources(key) == {}, "usage counts from the first sample on"
    usage.sample(key, {"cpu": 4000}, now=HALF_LIFE)
    assert usage.consumed_resources(key) == {"cpu": "2"}
    usage.sample(key, {}, now=2 * HALF_LIFE)
    assert usage.consumed_resources(key) == {"cpu": "1"}
    usage.sample(key, {"cpu": 4000}, now=3 * HALF_LIFE)
    assert usage.consumed_resources(key) == {"cpu": "2500m"}


def test_local_queue_with_weight_zero_is_last_even_if_it_consumed_nothing() -> None:
    usage = LocalQueueUsage(SETTINGS)
    usage.put(("default", "a"), local("a", fairSharing={"weight": "0"}))
    assert usage.usage(("default", "a")) == float("inf")


def test_workload_counts_at_once_with_what_the_first_interval_adds() -> None:
    usage, key = LocalQueueUsage(SETTINGS), ("default", "a")
    usage.sample(key, {}, now=0)
    usage.charge(key, {("default", "cpu"): 4000})
    assert usage.usage(key) == pytest.approx(2)
    assert usage.is_due(key, now=1)


def test_resource_weights_apply_to_what_was_consumed() -> None:
    usage = LocalQueueUsage(AdmissionFairSharing(HALF_LIFE, HALF_LIFE, {"cpu": 3}))
    for now in (0, HALF_LIFE):
        usage.sample(("default", "a"), {"cpu": 4000, "nvidia.com/gpu": 2000}, now=now)
    assert usage.usage(("default", "a")) == pytest.approx(7)


def test_consumption_is_restored_from_the_status_after_a_restart() -> None:
    usage, obj = LocalQueueUsage(SETTINGS), local("a")
    consumed = {"consumedResources": {"cpu": "2500m"}, "lastUpdate": "2026-01-01T00:00:00Z"}
    obj["status"] = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": consumed}}
    usage.put(("default", "a"), obj)
    assert usage.usage(("default", "a")) == pytest.approx(2.5)


def test_without_a_half_life_past_usage_does_not_count() -> None:
    usage, key = LocalQueueUsage(AdmissionFairSharing()), ("default", "a")
    usage.sample(key, {"cpu": 4000}, now=0)
    usage.charge(key, {("default", "cpu"): 4000})
    assert usage.usage(key) == 0


@pytest.mark.parametrize(
    ("weight", "expected"), [("abc", 1.0), ("-1", 0.0), ("500m", 0.5), ("1e400", sys.float_info.max)]
)
def test_weight_that_was_stored_without_validation_does_not_stop_the_queues(weight: str, expected: float) -> None:
    assert parse_weight({"fairSharing": {"weight": weight}}) == expected
    sim = simulation(local("q", fairSharing={"weight": weight}), **USAGE_BASED)
    sim.put(workload("a"))
    assert sim.run_until_idle() == ["a"]
