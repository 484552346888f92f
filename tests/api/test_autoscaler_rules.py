"""Validation of HorizontalPodAutoscalers: the targets of metrics and the policies of scaling."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.workload.autoscaler import HorizontalPodAutoscalerStrategy


def problems(**spec: Any) -> list[tuple[str, str]]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    autoscaler = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target, **spec}}
    strategy = HorizontalPodAutoscalerStrategy()
    strategy.default(autoscaler)
    return [(error.field, error.message) for error in strategy.validate(autoscaler)]


@pytest.mark.parametrize("amount", ["0", "-1", "0m"])
@pytest.mark.parametrize(("name", "type"), [("value", "Value"), ("averageValue", "AverageValue")])
@pytest.mark.parametrize("source", ["external", "object"])
def test_the_target_of_a_metric_is_positive(source: str, name: str, type: str, amount: str) -> None:
    described = {"apiVersion": "v1", "kind": "Service", "name": "s"}
    metric = {"metric": {"name": "m"}, "target": {"type": type, name: amount}, "describedObject": described}
    if source == "external":
        del metric["describedObject"]
    (problem,) = problems(metrics=[{"type": source.capitalize(), source: metric}])
    assert problem[0] == f"spec.metrics[0].{source}.target.{name}"
    assert "must be positive" in problem[1]


@pytest.mark.parametrize("rules", ["scaleUp", "scaleDown"])
def test_an_empty_list_of_policies_is_refused_and_a_missing_one_is_defaulted(rules: str) -> None:
    expected = [(f"spec.behavior.{rules}.policies", "Required value: must specify at least one Policy")]
    assert problems(behavior={rules: {"policies": []}}) == expected
    assert problems(behavior={rules: {"policies": None}}) == []
    assert problems(behavior={rules: {}}) == []
