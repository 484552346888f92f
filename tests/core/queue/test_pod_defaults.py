"""What pods will request once they exist: overhead, defaults of LimitRanges, limits; and which pods cannot exist."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.queues import QueueSimulation, flavor, local, queue, workload

from torchyard.core.queue.decisions import StayPending
from torchyard.core.queue.pod_defaults import PodDefaults

DEFAULTS = {"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "2"}}


def pods(count: int = 1, **spec: Any) -> dict[str, Any]:
    return {"name": "main", "count": count, "template": {"spec": spec}}


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": resources}


def defaults(*limits: dict[str, Any], **overheads: str) -> PodDefaults:
    classes = [{"metadata": {"name": name}, "overhead": {"podFixed": {"cpu": cpu}}} for name, cpu in overheads.items()]
    return PodDefaults.of([{"metadata": {"name": "limits"}, "spec": {"limits": list(limits)}}], classes)


def simulate(pod_set: dict[str, Any], applied: PodDefaults) -> QueueSimulation:
    sim = QueueSimulation(flavor(), queue(cpu=10), local())
    sim.state.set_pod_defaults("default", applied)
    sim.put(workload("a", pod_set))
    return sim


USAGE: dict[str, tuple[dict[str, Any], PodDefaults, int]] = {
    "limits only": (pods(2, containers=[container(limits={"cpu": "2"})]), defaults(), 4000),
    "default request": (pods(containers=[container()]), defaults(DEFAULTS), 2000),
    "default limit": (pods(containers=[container()]), defaults({"type": "Container", "default": {"cpu": "3"}}), 3000),
    "own request": (pods(containers=[container(requests={"cpu": "1"})]), defaults(DEFAULTS), 1000),
    "pod-level limit": (pods(resources={"limits": {"cpu": "3"}}, containers=[container()]), defaults(), 3000),
    "pod-level default": (
        pods(resources={"requests": {"memory": "0"}}, containers=[container()]),
        defaults({"type": "Pod", "defaultRequest": {"cpu": "5"}}),
        5000,
    ),
    "overhead of the runtime class": (
        pods(2, runtimeClassName="box", containers=[container(requests={"cpu": "1"})]),
        defaults(box="500m"),
        3000,
    ),
    "overhead of the pod": (
        pods(runtimeClassName="box", overhead={"cpu": "1"}, containers=[container(requests={"cpu": "1"})]),
        defaults(box="500m"),
        2000,
    ),
    "unknown runtime class": (
        pods(runtimeClassName="other", containers=[container(requests={"cpu": "1"})]),
        defaults(box="500m"),
        1000,
    ),
}


@pytest.mark.parametrize(("pod_set", "applied", "usage"), USAGE.values(), ids=USAGE)
def test_usage_is_what_the_pods_will_request(pod_set: dict[str, Any], applied: PodDefaults, usage: int) -> None:
    sim = simulate(pod_set, applied)
    assert sim.run_until_idle() == ["a"]
    assert sim.state.cache.cluster_queues["team"].node.usage == {("default", "cpu"): usage}


SPEC = "spec.podSets[0].template.spec"
INVALID: dict[str, tuple[dict[str, Any], PodDefaults, str]] = {
    "request above limit": (
        pods(containers=[container(requests={"cpu": "3"}, limits={"cpu": "2"})]),
        defaults(),
        f'resources validation failed: {SPEC}.containers[0]: Invalid value: ["cpu"]:'
        " requests must not exceed its limits",
    ),
    "request above the default limit": (
        pods(containers=[container(requests={"cpu": "5"})]),
        defaults(DEFAULTS),
        f'resources validation failed: {SPEC}.containers[0]: Invalid value: ["cpu"]:'
        " requests must not exceed its limits",
    ),
    "pod-level request above limit": (
        pods(resources={"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}, containers=[container()]),
        defaults(),
        f'resources validation failed: {SPEC}.resources: Invalid value: ["cpu"]: requests must not exceed its limits',
    ),
    "above the maximum of containers": (
        pods(containers=[container(requests={"cpu": "2"})]),
        defaults({"type": "Container", "max": {"cpu": "1"}}),
        f'resources didn\'t satisfy LimitRange constraints: {SPEC}.containers[0]: Invalid value: ["cpu"]:'
        " requests must not be above the limitRange max",
    ),
    "below the minimum of pods": (
        pods(containers=[container(requests={"cpu": "2"})]),
        defaults({"type": "Pod", "min": {"cpu": "3"}}),
        f'resources didn\'t satisfy LimitRange constraints: {SPEC}: Invalid value: ["cpu"]:'
        " requests must not be below the limitRange min",
    ),
}


@pytest.mark.parametrize(("pod_set", "applied", "message"), INVALID.values(), ids=INVALID)
def test_pods_that_cannot_be_created_get_no_quota(pod_set: dict[str, Any], applied: PodDefaults, message: str) -> None:
    sim = simulate(pod_set, applied)
    messages = [decision.why.message for decision in sim.run_cycle() if isinstance(decision, StayPending)]
    assert messages == [message]
    assert sim.run_until_idle() == []


def test_the_strictest_bound_and_the_first_default_apply() -> None:
    amounts = {"b": {"cpu": "2"}, "a": {"cpu": "3"}}
    limits = {name: {"type": "Container", "max": cpu, "default": cpu} for name, cpu in amounts.items()}
    ranges = [{"metadata": {"name": name}, "spec": {"limits": [limit]}} for name, limit in limits.items()]
    item = PodDefaults.of(ranges, []).limits["Container"]
    assert (str(item.max["cpu"]), item.default) == ("2", {"cpu": "3"})


def test_changed_defaults_apply_to_pending_workloads_only() -> None:
    sim = simulate(pods(containers=[container()]), defaults({"type": "Container", "defaultRequest": {"cpu": "6"}}))
    sim.put(workload("b", pods(containers=[container()]), at=1))
    assert sim.run_until_idle() == ["a"]
    sim.state.set_pod_defaults("default", defaults({"type": "Container", "defaultRequest": {"cpu": "4"}}))
    assert sim.run_until_idle() == ["b"]
    assert sim.state.cache.cluster_queues["team"].node.usage == {("default", "cpu"): 10_000}
