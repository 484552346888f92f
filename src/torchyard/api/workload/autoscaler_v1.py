"""Conversion of HorizontalPodAutoscalers between autoscaling/v2 and autoscaling/v1.

autoscaling/v1 has a single metric, cpu utilization. All other metrics and the newer fields of spec and status are kept
in annotations, so that a v1 client can write the object back without losing them.
"""

from __future__ import annotations

import json
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.workload.autoscaler import SOURCES, source_of

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _STRATEGY = f"{_PREFIX}metrics", f"{_PREFIX}behavior"
_CURRENT, _CONDITIONS = f"{_PREFIX}current-metrics", f"{_PREFIX}conditions"
_ANNOTATIONS = (_METRICS, _STRATEGY, _CURRENT, _CONDITIONS)


def to_v1(autoscaler: Object) -> Object:
    """Convert from autoscaling/v2."""
    obj = {**autoscaler, "metadata": dict(autoscaler["metadata"])}
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    carried: dict[str, Any] = {}
    metrics = spec.pop("metrics", None) or []
    cpu = next((metric for metric in metrics if _is_cpu_utilization(metric, "target")), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    carried[_METRICS] = [_old_metric(metric, "target") for metric in metrics if metric is not cpu]
    strategy = spec.pop("behavior", None)
    carried[_STRATEGY] = _capitalize_keys(strategy) if strategy else None
    current = status.pop("currentMetrics", None) or []
    used = next((metric for metric in current if _is_cpu_utilization(metric, "current")), None)
    if used is not None:
        status["currentCPUUtilizationPercentage"] = used["resource"]["current"]["averageUtilization"]
    carried[_CURRENT] = [_old_metric(metric, "current") for metric in current]
    carried[_CONDITIONS] = status.pop("conditions", None)
    annotations = dict(obj["metadata"].get("annotations") or {})
    annotations |= {key: json.dumps(value, separators=(",", ":")) for key, value in carried.items() if value}
    if annotations:
        obj["metadata"]["annotations"] = annotations
    return {**obj, "spec": spec, "status": {"currentReplicas": 0, "desiredReplicas": 0, **status}}


def from_v1(autoscaler: Object) -> Object:
    """Convert to autoscaling/v2. Valid annotations take precedence; invalid ones are ignored."""
    obj = {**autoscaler, "metadata": dict(autoscaler["metadata"])}
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    annotations = dict(obj["metadata"].get("annotations") or {})
    carried = {key: _read(annotations.pop(key)) for key in _ANNOTATIONS if key in annotations}
    metrics = [_new_metric(metric, "target") for metric in carried.get(_METRICS) or ()]
    use = spec.pop("targetCPUUtilizationPercentage", None)
    if use is not None:
        target = {"type": "Utilization", "averageUtilization": use}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if metrics:
        spec["metrics"] = metrics
    if carried.get(_STRATEGY):
        spec["behavior"] = _uncapitalize_keys(carried[_STRATEGY])
    status.pop("currentCPUUtilizationPercentage", None)
    if carried.get(_CURRENT):
        status["currentMetrics"] = [_new_metric(metric, "current") for metric in carried[_CURRENT]]
    if carried.get(_CONDITIONS):
        status["conditions"] = carried[_CONDITIONS]
    if annotations:
        obj["metadata"]["annotations"] = annotations
    else:
        obj["metadata"].pop("annotations", None)
    return {**obj, "spec": spec, "status": status}


def _is_cpu_utilization(metric: Object, which: str) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and (resource.get(which) or {}).get("averageUtilization") is not None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _with_prefix(which: str, name: str) -> str:
    return f"{which}{name[:1].upper()}{name[1:]}"


def _old_metric(metric: Object, which: str) -> Object:
    """Convert a metric to the flat form of the annotations: `targetAverageValue` instead of `target.averageValue`."""
    source = source_of(metric)
    body = dict(metric.get(source) or {})
    values = body.pop(which, None) or {}
    flat: Object = {}
    if "describedObject" in body:
        flat["target"] = body.pop("describedObject")
    identifier = body.pop("metric", None) or {}
    if identifier.get("name"):
        flat["metricName"] = identifier["name"]
    if "name" in body:
        flat["name"] = body.pop("name")
    renamed = {"value": _with_prefix(which, "value"), "averageUtilization": _with_prefix(which, "averageUtilization")}
    average = "averageValue" if source == "object" else _with_prefix(which, "averageValue")
    for name, value in values.items():
        if name == "averageValue":
            flat[average] = value
        elif name in renamed:
            flat[renamed[name]] = value
    if identifier.get("selector"):
        flat["selector"] = identifier["selector"]
    return {"type": metric.get("type"), source: {**flat, **body}}


def _new_metric(metric: Object, which: str) -> Object:
    source = next((name for name in SOURCES if metric.get(name) is not None), source_of(metric))
    flat = dict(metric.get(source) or {})
    body: Object = {}
    if source == "object" and "target" in flat:
        body["describedObject"] = flat.pop("target")
    if "metricName" in flat:
        body["metric"] = {"name": flat.pop("metricName")}
        if "selector" in flat:
            body["metric"]["selector"] = flat.pop("selector")
    values: Object = {}
    for name in ("value", "averageValue", "averageUtilization"):
        for written in (_with_prefix(which, name), name):
            if written in flat:
                values[name] = flat.pop(written)
    if which == "target":
        kinds = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
        chosen = next((kind for name, kind in kinds.items() if name in values), "Value")
        values = {"type": chosen, **values}
    return {"type": metric.get("type"), source: {**body, **flat, which: values}}


def _capitalize_keys(value: Any) -> Any:
    """Convert keys to upstream's internal form of `behavior`, in which names begin with a capital letter."""
    if isinstance(value, dict):
        return {f"{key[:1].upper()}{key[1:]}": _capitalize_keys(inner) for key, inner in value.items()}
    return [_capitalize_keys(item) for item in value] if isinstance(value, list) else value


def _uncapitalize_keys(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = {f"{key[:1].lower()}{key[1:]}": _uncapitalize_keys(inner) for key, inner in value.items()}
        return {key: inner for key, inner in pairs.items() if inner is not None}
    return [_uncapitalize_keys(item) for item in value] if isinstance(value, list) else value
