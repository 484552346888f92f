"""Admission fair sharing: LocalQueues that used less come first. These need a configuration."""

from __future__ import annotations

from typing import Any

from tests.kueue.harness import Object, Scenario, cpu_group, scenario_of

# What a LocalQueue used counts for the whole test, and at once.
CONFIGURATION = {
    "admissionFairSharing": {
        "usageHalfLifeTime": "30s",
        "usageSamplingInterval": "1s",
        "resourceWeights": {"example.com/gpu": 10.0, "memory": 0.0},
    }
}


class UsageScenario(Scenario):
    has_pending_reasons = False


_USAGE = {"admissionMode": "UsageBasedAdmissionFairSharing"}


def _base(s: Scenario, cpus: int, weights: dict[str, str | None], **spec: Any) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(cpus), local_queue="", admissionScope=_USAGE, **spec)
    for name, weight in weights.items():
        sharing: Object = {} if weight is None else {"fairSharing": {"weight": weight}}
        s.local_queue(name, "q", "ns", **sharing)


@scenario_of(UsageScenario)
def local_queue_that_used_less_is_first(s: Scenario) -> None:
    _base(s, 2, {"a": None, "b": None})
    s.workload("a0", "a", cpu=2)
    s.observe()
    s.workload("a1", "a", cpu=2)
    s.workload("b0", "b", cpu=2)
    s.observe(quiet=3)
    s.finish("a0")
    s.observe()
    s.finish("b0")
    s.observe()


@scenario_of(UsageScenario)
def weight_of_a_local_queue_divides_its_usage(s: Scenario) -> None:
    _base(s, 4, {"a": "8", "b": "1", "c": "0"})
    s.workload("a0", "a", cpu=2)
    s.workload("b0", "b", cpu=2)
    s.observe(quiet=3)
    for name in ("c1", "b1", "a1"):
        s.workload(name, name[0], cpu=4)
    s.finish("a0")
    s.finish("b0")
    s.observe()
    s.finish("c1")
    s.observe()
    s.finish("a1")
    s.observe()


@scenario_of(UsageScenario)
def priority_does_not_pass_a_local_queue_that_used_less(s: Scenario) -> None:
    _base(s, 2, {"a": None, "b": None})
    s.workload("a0", "a", cpu=2)
    s.observe(quiet=3)
    s.workload("a1", "a", cpu=2, priority=10)
    s.workload("b0", "b", cpu=2)
    s.finish("a0")
    s.observe()


@scenario_of(UsageScenario)
def local_queue_that_used_most_is_preempted_first(s: Scenario) -> None:
    _base(s, 4, {"a": None, "b": None, "c": None}, preemption={"withinClusterQueue": "LowerPriority"})
    s.workload("a0", "a", cpu=1, priority=1)
    s.observe(quiet=3)
    s.workload("a1", "a", cpu=1, priority=1)
    s.workload("b0", "b", cpu=1)
    s.workload("b1", "b", cpu=1)
    s.observe()
    s.workload("c0", "c", cpu=1, priority=5)
    s.observe()


@scenario_of(UsageScenario)
def burst_of_one_local_queue_does_not_fill_the_queue(s: Scenario) -> None:
    """A workload that is admitted counts before its usage is sampled."""
    _base(s, 1, {"a": None, "b": None})
    s.workload("first", "a")
    s.observe()
    for name in ("a0", "a1", "a2", "b0", "b1"):
        s.workload(name, name[0])
    for name in ("first", "b0", "b1"):
        s.finish(name)
        s.observe()


@scenario_of(UsageScenario)
def usage_does_not_matter_without_the_scope(s: Scenario) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(2), local_queue="")
    for name in "ab":
        s.local_queue(name, "q")
    s.workload("a0", "a", cpu=2)
    s.observe(quiet=3)
    s.workload("a1", "a", cpu=2)
    s.workload("b0", "b", cpu=2)
    s.finish("a0")
    s.observe()
