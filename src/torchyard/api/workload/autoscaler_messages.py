"""Conditions, reasons and messages of a HorizontalPodAutoscaler, as upstream writes them."""

from __future__ import annotations

CONTROLLER = "horizontal-pod-autoscaler"

ABLE, ACTIVE, LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"

NO_SCALE, NO_METRIC = "FailedGetScale", "FailedGetResourceMetric"
NOT_COMPUTED = "FailedComputeMetricsReplicas"
DISABLED = ("ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
RESCALED, NOT_RESCALED = "SuccessfulRescale", "FailedRescale"
READY = ("ReadyForNewScale", "recommended size matches current size")
STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
IN_RANGE = ("DesiredWithinRange", "the desired count is within the acceptable range")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FAST_UP = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
TOO_FAST_DOWN = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")

BELOW = "All metrics below target"
ABOVE_LIMIT = "Current number of replicas above Spec.MaxReplicas"
BELOW_LIMIT = "Current number of replicas below Spec.MinReplicas"


def no_scale(why: str) -> str:
    return f"the HPA controller was unable to get the target's current scale: {why}"


def found_metric(metric: str) -> tuple[str, str]:
    return "ValidMetricFound", f"the HPA was able to successfully calculate a replica count from {metric}"


def no_count(why: str) -> str:
    return f"the HPA was unable to compute the replica count: {why}"


def rescaling(count: int) -> tuple[str, str]:
    return "SucceededRescale", f"the HPA controller was able to update the target scale to {count}"


def rescaled(count: int, why: str) -> str:
    return f"New size: {count}; reason: {why}"


def above(metric: str) -> str:
    return f"{metric} above target"


def utilization(resource: str) -> str:
    return f"{resource} resource utilization (percentage of request)"


def usage(resource: str) -> str:
    return f"{resource} resource"


def no_kind(kind: str, api_version: str | None) -> str:
    return f'no matches for kind "{kind}" in "{api_version}"'


def unsupported_metric(kind: str) -> str:
    return f"{kind} metrics are not supported by this plane; use Resource or ContainerResource"


def no_metrics(resource: str) -> str:
    return f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API"


def missing_request(resource: str, container: str, pod: str) -> str:
    return f"failed to get {resource} utilization: missing request for {resource} in container {container} of Pod {pod}"


def no_requests(resource: str) -> str:
    return f"failed to get {resource} utilization: no container requests {resource}"
