"""Conversions of events and autoscalers between versions, without loss."""

from __future__ import annotations

import copy
import json
from typing import Any

from torchyard.api.event.conversion import from_core, to_core
from torchyard.api.objects import Object
from torchyard.api.workload.autoscaler_v1 import from_v1, to_v1

EVENT: Object = {
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
    "reason": "R",
    "message": "m",
    "source": {"component": "c", "host": "h"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:01:00Z",
    "count": 3,
    "type": "Warning",
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def test_a_core_event_converts_to_events_k8s_io() -> None:
    assert from_core(EVENT) == {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "reason": "R",
        "note": "m",
        "deprecatedSource": {"component": "c", "host": "h"},
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
        "deprecatedLastTimestamp": "2026-01-01T00:01:00Z",
        "deprecatedCount": 3,
        "type": "Warning",
        "eventTime": None,
    }


def test_an_event_survives_a_round_trip_between_groups() -> None:
    reported = {**EVENT, "reportingComponent": "a.b/c", "reportingInstance": "i", "series": {"count": 2}}
    assert to_core(from_core(reported)) == reported


def metric(kind: str, **source: Any) -> Object:
    return {"type": kind, kind[:1].lower() + kind[1:]: source}


CPU = metric("Resource", name="cpu", target={"type": "Utilization", "averageUtilization": 50})
OTHERS = [
    metric("Resource", name="memory", target={"type": "AverageValue", "averageValue": "1Gi"}),
    metric(
        "Pods",
        metric={"name": "q", "selector": {"matchLabels": {"a": "b"}}},
        target={"type": "AverageValue", "averageValue": "10"},
    ),
    metric(
        "Object",
        describedObject={"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
        metric={"name": "rps"},
        target={"type": "Value", "value": "5"},
    ),
    metric("External", metric={"name": "e"}, target={"type": "AverageValue", "averageValue": "3"}),
    metric("ContainerResource", name="cpu", container="c", target={"type": "Utilization", "averageUtilization": 9}),
]
STRATEGY: Object = {
    "scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]},
    "scaleDown": {"selectPolicy": "Disabled"},
}


def scaler(**spec: Any) -> Object:
    return {"metadata": {"name": "h", "annotations": {"mine": "x"}}, "spec": {"maxReplicas": 3, **spec}, "status": {}}


def test_autoscaling_v1_keeps_other_metrics_in_annotations() -> None:
    old = to_v1(scaler(metrics=[OTHERS[0], CPU, *OTHERS[1:]], behavior=STRATEGY))
    assert old["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    carried = json.loads(old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"])
    # as kube-apiserver writes it
    assert carried == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}},
        {
            "type": "Pods",
            "pods": {"metricName": "q", "targetAverageValue": "10", "selector": {"matchLabels": {"a": "b"}}},
        },
        {
            "type": "Object",
            "object": {
                "target": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
                "metricName": "rps",
                "targetValue": "5",
            },
        },
        {"type": "External", "external": {"metricName": "e", "targetAverageValue": "3"}},
        {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "targetAverageUtilization": 9, "container": "c"},
        },
    ]


def test_an_autoscaler_survives_a_round_trip_through_v1() -> None:
    new = scaler(metrics=[*OTHERS, CPU], behavior=STRATEGY)
    new["status"] = {
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "conditions": [{"type": "AbleToScale", "status": "True"}],
        "currentMetrics": [metric("Resource", name="cpu", current={"averageUtilization": 40, "averageValue": "4m"})],
    }
    before = copy.deepcopy(new)
    old = to_v1(new)
    assert new == before
    assert old["status"] == {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 40}
    assert from_v1(old) == new


def test_an_invalid_annotation_is_ignored() -> None:
    broken = scaler(targetCPUUtilizationPercentage=50)
    broken["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"] = "{"
    assert from_v1(broken)["spec"]["metrics"] == [CPU]
    assert from_v1(broken)["metadata"]["annotations"] == {"mine": "x"}
