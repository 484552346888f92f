"""How many replicas an autoscaler asks for, by usage, limits and scaling behavior."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.autoscaler.behavior import ScaleHistory
from torchyard.core.autoscaler.decide import AutoscalerDecision, AutoscalerView, decide, decide_without_scale

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def autoscaler(*metrics: Object, low: int = 1, high: int = 10, status: Object | None = None, **strategy: Any) -> Object:
    spec: Object = {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train"},
        "minReplicas": low,
        "maxReplicas": high,
        "metrics": list(metrics) or [CPU],
    }
    if strategy:
        spec["behavior"] = strategy
    return {"metadata": {"name": "train", "generation": 3}, "spec": spec, "status": status or {}}


def pod(name: str, *, request: str = "100m", ready: bool = True, phase: str = "Running", **metadata: str) -> Object:
    container = {"name": "pytorch", "resources": {"requests": {"cpu": request} if request else {}}}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}, "status": status}


def decision_for(
    used: list[str | None],
    *,
    hpa: Object | None = None,
    pods: list[Object] | None = None,
    history: ScaleHistory | None = None,
    current: int | None = None,
    now: datetime = NOW,
) -> AutoscalerDecision:
    """One pod for each usage; None for a pod without metrics."""
    all_pods = pods or [pod(f"p{number}") for number in range(len(used))]
    usage = {
        item["metadata"]["name"]: {"containers": [{"name": "pytorch", "usage": {"cpu": amount}}]}
        for item, amount in zip(all_pods, used, strict=True)
        if amount is not None
    }
    count = len(used) if current is None else current
    return decide(AutoscalerView(hpa or autoscaler(), count, all_pods, usage, history or ScaleHistory(), now))


def conditions(decision: AutoscalerDecision) -> dict[str, tuple[str, str]]:
    return {
        condition["type"]: (condition["status"], condition["reason"]) for condition in decision.status["conditions"]
    }


# Long enough ago for a scale-down.
CALM = ScaleHistory(recommended=((at(-301), 9),))


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        (["50m"], None),
        (["54m"], None),  # within a tenth of the target
        (["56m"], 2),
        (["100m", "100m"], 4),
        (["100m", "50m"], 3),
        (["10m", "10m", "10m", "10m"], 1),
        (["100m", None], None),  # as if the second used nothing
        (["100m", None, "100m"], 4),
        (["20m", None], None),  # as if the second used its target
    ],
)
def test_replicas_follow_usage(used: list[str | None], wanted: int | None) -> None:
    assert decision_for(used, history=CALM, now=at(1)).replicas == wanted


def test_unready_pods_count_as_unused_and_finished_pods_are_ignored() -> None:
    busy = [pod("a"), pod("b", ready=False), pod("c", phase="Succeeded"), pod("d", deletionTimestamp="now")]
    decision = decision_for(["150m", "100m", "100m", "100m"], pods=busy, current=2)
    assert decision.replicas == 3


def test_an_average_value_can_be_a_target_and_the_highest_proposal_wins() -> None:
    value = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "25m"}}}
    decision = decision_for(["50m"], hpa=autoscaler(CPU, value))
    assert decision.replicas == 2
    assert [metric["resource"]["current"] for metric in decision.status["currentMetrics"]] == [
        {"averageValue": "50m", "averageUtilization": 50},
        {"averageValue": "50m"},
    ]
    assert [event.message for event in decision.events] == ["New size: 2; reason: cpu resource above target"]


def test_a_container_can_be_measured_alone() -> None:
    spec = {"name": "cpu", "container": "pytorch", "target": {"type": "Utilization", "averageUtilization": 50}}
    assert (
        decision_for(["100m"], hpa=autoscaler({"type": "ContainerResource", "containerResource": spec})).replicas == 2
    )


@pytest.mark.parametrize(
    ("metric", "pods", "used", "why"),
    [
        (CPU, [pod("p", request="")], ["1m"], "missing request for cpu in container pytorch of Pod p"),
        (CPU, [pod("p")], [None], "no metrics returned from resource metrics API"),
        ({"type": "External", "external": {}}, [pod("p")], ["1m"], "External metrics are not supported by this plane"),
    ],
)
def test_a_metric_that_is_unavailable_gets_a_condition_and_an_event(
    metric: Object, pods: list[Object], used: list[Any], why: str
) -> None:
    decision = decision_for(used, hpa=autoscaler(metric), pods=pods)
    assert decision.replicas is None
    assert conditions(decision)["ScalingActive"] == ("False", "FailedGetResourceMetric")
    ((kind, reason, message, _),) = decision.events
    assert (kind, reason) == ("Warning", "FailedGetResourceMetric")
    assert why in message


@pytest.mark.parametrize(
    ("low", "high", "current", "used", "wanted", "limited"),
    [
        (1, 3, 2, ["100m", "100m"], 3, ("True", "TooManyReplicas")),
        (2, 9, 3, ["1m", "1m", "1m"], 2, ("True", "TooFewReplicas")),
        (1, 2, 3, ["50m"] * 3, 2, None),
        (4, 9, 3, ["50m"] * 3, 4, None),
        (1, 9, 1, ["1000m"], 5, ("True", "ScaleUpLimit")),
        (1, 9, 2, ["50m", "50m"], None, ("False", "DesiredWithinRange")),
    ],
)
def test_replica_limits_and_scaling_policies_apply(
    low: int, high: int, current: int, used: list[str | None], wanted: int | None, limited: tuple[str, str] | None
) -> None:
    decision = decision_for(used, hpa=autoscaler(low=low, high=high), current=current, history=CALM, now=at(1))
    assert decision.replicas == wanted
    assert conditions(decision).get("ScalingLimited") == limited
    assert decision.status["desiredReplicas"] == (wanted or current)
    assert decision.status["observedGeneration"] == 3


def test_scaling_down_waits_for_the_stabilization_window() -> None:
    history = ScaleHistory()
    seen = []
    for seconds in (0, 15, 285, 299, 301):
        decision = decision_for(["1m"] * 4, history=history, now=at(seconds))
        history = decision.history
        seen.append(decision.replicas)
    assert seen == [None, None, None, None, 1]
    assert conditions(decision_for(["1m"] * 4))["AbleToScale"] == ("True", "ScaleDownStabilized")


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({"scaleUp": {"selectPolicy": "Disabled"}}, None),
        ({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}, 3),
        ({"scaleUp": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]}}, 3),
        ({"scaleUp": {"stabilizationWindowSeconds": 60}}, None),
    ],
)
def test_scaling_behavior_is_respected(rules: Object, wanted: int | None) -> None:
    assert decision_for(["400m", "400m"], hpa=autoscaler(high=20, **rules)).replicas == wanted


def test_changes_within_one_period_add_up() -> None:
    rules: Object = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    first = decision_for(["400m"], hpa=autoscaler(high=20, **rules))
    assert first.replicas == 3
    second = decision_for(["400m"] * 3, hpa=autoscaler(high=20, **rules), history=first.history, now=at(15))
    assert second.replicas is None
    assert conditions(second)["ScalingLimited"] == ("True", "ScaleUpLimit")
    assert decision_for(["400m"] * 3, hpa=autoscaler(high=20, **rules), history=first.history, now=at(61)).replicas == 5


def test_a_target_with_zero_replicas_is_not_scaled() -> None:
    decision = decision_for([], current=0)
    assert decision.replicas is None
    assert conditions(decision)["ScalingActive"] == ("False", "ScalingDisabled")


def test_a_missing_target_gets_a_condition_and_an_event() -> None:
    decision = decide_without_scale(autoscaler(), 'pytorchjobs.kubeflow.org "train" not found', NOW)
    assert conditions(decision)["AbleToScale"] == ("False", "FailedGetScale")
    assert decision.events[0].message.endswith("not found")


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    first = decision_for(["50m"])
    later = decision_for(["50m"], hpa=autoscaler(status=first.status), now=at(15))
    assert later.status == first.status
    changed = decision_for([None], hpa=autoscaler(status=first.status), now=at(30))
    times = {condition["type"]: condition["lastTransitionTime"] for condition in changed.status["conditions"]}
    assert times["ScalingActive"] == "2026-01-01T12:00:30Z"
    assert times["AbleToScale"] == "2026-01-01T12:00:00Z"
