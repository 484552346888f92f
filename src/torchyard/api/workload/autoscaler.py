"""Strategy, defaults and validation of HorizontalPodAutoscalers in their stored form, autoscaling/v2."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import StatusSubresourceStrategy

# in upstream's order
SOURCES = ("object", "external", "pods", "resource", "containerResource")
TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_MAX_WINDOW = 3600
_MAX_PERIOD = 1800
_PERCENT: Object = {"type": "Percent", "value": 100, "periodSeconds": 15}
_PODS: Object = {"type": "Pods", "value": 4, "periodSeconds": 15}


def source_of(metric: Object) -> str:
    """Return the field that describes a metric: `resource` for the type `Resource`."""
    kind = metric.get("type") or ""
    return kind[:1].lower() + kind[1:]


def default_autoscaler(autoscaler: Object) -> None:
    spec = autoscaler.setdefault("spec", {})
    if spec.get("minReplicas") is None:
        spec["minReplicas"] = 1
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    for metric in spec["metrics"]:
        for source in SOURCES:
            metric_target: Object = (metric.get(source) or {}).get("target") or {}
            for name in ("value", "averageValue"):
                if metric_target.get(name) is not None:
                    metric_target[name] = quantity.canonical(metric_target[name])
    strategy = spec.get("behavior")
    if strategy is not None:
        _default_rules(strategy, "scaleUp", {"stabilizationWindowSeconds": 0}, [_PODS, _PERCENT])
        _default_rules(strategy, "scaleDown", {}, [_PERCENT])
    autoscaler.setdefault("status", {})


def _default_rules(strategy: Object, name: str, values: Object, policies: list[Object]) -> None:
    rules = {"selectPolicy": "Max", "policies": [dict(policy) for policy in policies], **values}
    own = {key: value for key, value in (strategy.get(name) or {}).items() if value is not None}
    # behind a feature gate that Kubernetes 1.34 disables by default
    own.pop("tolerance", None)
    strategy[name] = {**rules, **own}


def validate_autoscaler(autoscaler: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = autoscaler["spec"]
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if minimum is not None and minimum < 1:
        errs.append(field_errors.invalid("spec.minReplicas", minimum, "must be greater than or equal to 1"))
    if maximum < 1:
        errs.append(field_errors.invalid("spec.maxReplicas", maximum, "must be greater than 0"))
    if minimum is not None and maximum < minimum:
        errs.append(field_errors.invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    _check_reference(target, "spec.scaleTargetRef", errs)
    if target.get("kind") != "ReplicationController":
        _check_version(target.get("apiVersion") or "", "spec.scaleTargetRef.apiVersion", errs)
    metrics = spec.get("metrics") or []
    for index, metric in enumerate(metrics):
        _check_metric(metric, f"spec.metrics[{index}]", errs)
    if minimum == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errs.append(field_errors.forbidden("spec.metrics", detail))
    for name in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(name)
        if rules is not None:
            _check_rules(rules, f"spec.behavior.{name}", errs)
    return errs


def _check_reference(reference: Object, at: str, errs: list[FieldError]) -> None:
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            errs.append(field_errors.required(f"{at}.{name}"))
        else:
            checks.report_problems(names.path_segment_problems(value), f"{at}.{name}", value, errs)


def _check_version(version: str, field: str, errs: list[FieldError]) -> None:
    if version.count("/") > 1:
        errs.append(field_errors.invalid(field, version, f"unexpected GroupVersion string: {version}"))
    elif "/" not in version:
        errs.append(field_errors.invalid(field, version, "apiVersion must specify API group"))


def _check_metric(metric: Object, at: str, errs: list[FieldError]) -> None:
    kind = metric.get("type") or ""
    if not kind:
        errs.append(field_errors.required(f"{at}.type", "must specify a metric source type"))
    present = [name for name in SOURCES if metric.get(name) is not None]
    if present:
        _CHECKS[present[0]](metric[present[0]], f"{at}.{present[0]}", errs)
    expected = source_of(metric)
    if kind not in TYPES:
        # reported twice, as upstream does
        errs += [field_errors.not_supported(f"{at}.type", kind, TYPES)] * 2
    elif expected not in present:
        detail = "must populate information for the given metric source"
        errs.append(field_errors.required(f"{at}.{expected}", detail))
    if len(present) > 1:
        others = [name for name in present if name != expected]
        detail = "must populate the given metric source only"
        errs.extend(field_errors.forbidden(f"{at}.{name}", detail) for name in others)


def _check_identifier(source: Object, at: str, errs: list[FieldError]) -> None:
    name = (source.get("metric") or {}).get("name") or ""
    if not name:
        errs.append(field_errors.required(f"{at}.metric.name", "must specify a metric name"))
    else:
        checks.report_problems(names.path_segment_problems(name), f"{at}.metric.name", name, errs)


def _check_target(source: Object, at: str, errs: list[FieldError]) -> Object:
    target: Object = source.get("target") or {}
    kind = target.get("type") or ""
    if not kind:
        errs.append(field_errors.required(f"{at}.target.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        detail = "must be either Utilization, Value, or AverageValue"
        errs.append(field_errors.invalid(f"{at}.target.type", kind, detail))
    for name in ("value", "averageValue"):
        if target.get(name) is not None and quantity.parse(target[name]).nano <= 0:
            errs.append(
                field_errors.invalid(f"{at}.target.{name}", quantity.canonical(target[name]), "must be positive")
            )
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errs.append(field_errors.invalid(f"{at}.target.averageUtilization", utilization, "must be greater than 0"))
    return target


def _check_object(source: Object, at: str, errs: list[FieldError]) -> None:
    _check_reference(source.get("describedObject") or {}, f"{at}.describedObject", errs)
    _check_identifier(source, at, errs)
    target = _check_target(source, at, errs)
    if target.get("value") is None and target.get("averageValue") is None:
        detail = "must set either a target value or averageValue"
        errs.append(field_errors.required(f"{at}.target.averageValue", detail))


def _check_external(source: Object, at: str, errs: list[FieldError]) -> None:
    _check_identifier(source, at, errs)
    target = _check_target(source, at, errs)
    values = [target.get(name) is not None for name in ("value", "averageValue")]
    if not any(values):
        detail = "must set either a target value for metric or a per-pod target"
        errs.append(field_errors.required(f"{at}.target.averageValue", detail))
    if all(values):
        detail = "may not set both a target value for metric and a per-pod target"
        errs.append(field_errors.forbidden(f"{at}.target.value", detail))


def _check_pods(source: Object, at: str, errs: list[FieldError]) -> None:
    _check_identifier(source, at, errs)
    target = _check_target(source, at, errs)
    value = target.get("averageValue")
    if value is None or quantity.parse(value).nano <= 0:
        detail = "must specify a positive target averageValue"
        errs.append(field_errors.required(f"{at}.target.averageValue", detail))


def _check_resource(source: Object, at: str, errs: list[FieldError]) -> None:
    if not source.get("name"):
        errs.append(field_errors.required(f"{at}.name", "must specify a resource name"))
    _check_raw_target(source, at, errs)


def _check_container_resource(source: Object, at: str, errs: list[FieldError]) -> None:
    if not source.get("name"):
        errs.append(field_errors.required(f"{at}.name", "must specify a resource name"))
    if not source.get("container"):
        errs.append(field_errors.required(f"{at}.container", "must specify a container"))
    _check_raw_target(source, at, errs)


def _check_raw_target(source: Object, at: str, errs: list[FieldError]) -> None:
    target = _check_target(source, at, errs)
    values = [target.get(name) is not None for name in ("averageUtilization", "averageValue")]
    if not any(values):
        detail = "must set either a target raw value or a target utilization"
        errs.append(field_errors.required(f"{at}.target.averageUtilization", detail))
    if all(values):
        detail = "may not set both a target raw value and a target utilization"
        errs.append(field_errors.forbidden(f"{at}.target.averageValue", detail))


_CHECKS = {
    "object": _check_object,
    "external": _check_external,
    "pods": _check_pods,
    "resource": _check_resource,
    "containerResource": _check_container_resource,
}


def _check_rules(rules: Object, at: str, errs: list[FieldError]) -> None:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        detail = "must be greater than or equal to zero"
        errs.append(field_errors.invalid(f"{at}.stabilizationWindowSeconds", window, detail))
    if window is not None and window > _MAX_WINDOW:
        detail = f"must be less than or equal to {_MAX_WINDOW}"
        errs.append(field_errors.invalid(f"{at}.stabilizationWindowSeconds", window, detail))
    checks.optional_enum(rules.get("selectPolicy"), ("Disabled", "Max", "Min"), f"{at}.selectPolicy", errs)
    policies = rules.get("policies") or []
    if not policies:
        errs.append(field_errors.required(f"{at}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(policies):
        field, period = f"{at}.policies[{index}]", policy.get("periodSeconds") or 0
        checks.optional_enum(policy.get("type") or "", ("Percent", "Pods"), f"{field}.type", errs)
        if (policy.get("value") or 0) <= 0:
            errs.append(field_errors.invalid(f"{field}.value", policy.get("value") or 0, "must be greater than zero"))
        if period <= 0:
            errs.append(field_errors.invalid(f"{field}.periodSeconds", period, "must be greater than zero"))
        if period > _MAX_PERIOD:
            detail = f"must be less than or equal to {_MAX_PERIOD}"
            errs.append(field_errors.invalid(f"{field}.periodSeconds", period, detail))


class HorizontalPodAutoscalerStrategy(StatusSubresourceStrategy):
    generation_fields = None

    def default(self, obj: Object) -> None:
        default_autoscaler(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"desiredReplicas": 0, "currentMetrics": None}

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_autoscaler(obj)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        counts = ("currentReplicas", "desiredReplicas")
        checks.nonnegative_fields(new.get("status") or {}, counts, "status", errs)
        return errs
