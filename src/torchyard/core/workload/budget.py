"""How many disruptions a PodDisruptionBudget allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from torchyard.api import conditions
from torchyard.api.metadata import controller_of, is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.api.workload import messages
from torchyard.core.events import Event
from torchyard.core.workload.deployment_view import scaled_value
from torchyard.core.workload.pods import earliest

# An evicted pod counts as gone for so long, although it still exists.
DELETION_TIMEOUT = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class BudgetView:
    budget: Object
    pods: tuple[Object, ...]  # that it selects
    scales: Mapping[str, int]  # how many replicas the controller of a pod wants, by the uid of the pod's owner
    now: datetime


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    status: Object
    events: tuple[Event, ...] = ()
    wake_after: float | None = None  # seconds


def needs_scales(budget: Object) -> bool:
    """Whether the expected number of pods is that of their controllers, and not that of the pods."""
    spec = budget.get("spec") or {}
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def decide(view: BudgetView) -> BudgetDecision:
    events = [] if view.pods else [Event("Normal", messages.NO_PODS, messages.NO_MATCHING_PODS)]
    is_unmanaged = any(controller_of(pod) is None for pod in view.pods)
    if is_unmanaged and needs_scales(view.budget):
        selector = (view.budget.get("spec") or {}).get("selector") or {}
        events.append(Event("Warning", messages.UNMANAGED_PODS, messages.unmanaged_pods(selector)))
    expected, desired = _expectation(view)
    disrupted, late, recheck = _disrupted(view)
    events += [Event("Warning", messages.NOT_DELETED_POD, _remains(view.budget)) for _ in late]
    healthy = sum(
        is_ready(pod) for pod in view.pods if not is_terminating(pod) and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    counts = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    return BudgetDecision(_status(view, counts, disrupted), tuple(events), recheck)


def _expectation(view: BudgetView) -> tuple[int, int]:
    """The expected number of pods, and how many of them must be healthy."""
    spec = view.budget.get("spec") or {}
    expected = sum(view.scales.values()) if needs_scales(view.budget) else len(view.pods)
    if (limit := spec.get("maxUnavailable")) is not None:
        return expected, max(expected - scaled_value(limit, expected, round_up=True), 0)
    if (minimum := spec.get("minAvailable")) is not None:
        return expected, scaled_value(minimum, expected, round_up=True)
    return expected, 0


def _disrupted(view: BudgetView) -> tuple[dict[str, str], list[str], float | None]:
    """Pods that the server lets go and that are not deleted yet; those that should be; when to look again."""
    recorded = (view.budget.get("status") or {}).get("disruptedPods") or {}
    disrupted: dict[str, str] = {}
    late: list[str] = []
    recheck = None
    for pod in view.pods:
        name = pod["metadata"]["name"]
        if name not in recorded or is_terminating(pod):
            continue
        left = (parse_rfc3339(recorded[name]) + DELETION_TIMEOUT - view.now).total_seconds()
        if left < 0:
            late.append(name)
        else:
            disrupted[name] = recorded[name]
            recheck = earliest(recheck, left)
    return disrupted, late, recheck


def _status(view: BudgetView, counts: dict[str, int], disrupted: dict[str, str]) -> Object:
    generation = view.budget["metadata"].get("generation", 0)
    allowed = counts["disruptionsAllowed"] > 0
    held = conditions.with_condition(
        (view.budget.get("status") or {}).get("conditions") or (),
        messages.DISRUPTION_ALLOWED,
        allowed,
        reason=messages.SUFFICIENT_PODS if allowed else messages.INSUFFICIENT_PODS,
        message="",
        now=to_rfc3339(view.now),
        generation=generation,
    )
    status: Object = {"observedGeneration": generation, **counts, "conditions": held}
    return {**status, "disruptedPods": disrupted} if disrupted else status


def after_failure(budget: Object, why: str, now: datetime) -> Object:
    """The status when the number of pods could not be found out: no disruption is allowed."""
    before = budget.get("status") or {}
    held = conditions.with_condition(
        before.get("conditions") or (),
        messages.DISRUPTION_ALLOWED,
        False,
        reason=messages.SYNC_FAILED,
        message=why,
        now=to_rfc3339(now),
        generation=before.get("observedGeneration", 0),
    )
    return {**before, "disruptionsAllowed": 0, "conditions": held}


def owners(pods: Iterable[Object]) -> dict[str, Object]:
    """The controllers of pods, by uid."""
    references = (controller_of(pod) for pod in pods)
    return {reference["uid"]: reference for reference in references if reference is not None}


def _remains(budget: Object) -> str:
    return messages.pod_remains(budget["metadata"]["namespace"], budget["metadata"]["name"])
