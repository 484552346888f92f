"""What to do about a HorizontalPodAutoscaler: the number of replicas, and the status that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.api.workload import autoscaler_messages as messages
from torchyard.core.autoscaler import behavior
from torchyard.core.autoscaler.behavior import ScaleHistory
from torchyard.core.autoscaler.replica_calculator import MetricProposal, MetricUnavailable, evaluate_metric
from torchyard.core.events import Event


@dataclass(frozen=True, slots=True)
class AutoscalerView:
    """An autoscaler, the replicas of its target, and the usage of the target's pods."""

    hpa: Object
    current: int  # spec.replicas of the target's scale subresource
    pods: list[Object]
    usage: Mapping[str, Object]  # PodMetrics by pod name
    history: ScaleHistory
    now: datetime


@dataclass(slots=True)
class AutoscalerDecision:
    """The target is scaled before the status is written, so that the status reports what has happened."""

    status: Object
    replicas: int | None = None  # None: no change
    events: list[Event] = field(default_factory=list)
    history: ScaleHistory = field(default_factory=ScaleHistory)


def decide(view: AutoscalerView) -> AutoscalerDecision:
    spec, current = view.hpa["spec"], view.current
    low, high = spec.get("minReplicas") or 1, spec["maxReplicas"]
    draft = _AutoscalerStatus(view)
    draft.set_condition(messages.ABLE, "True", *messages.READY)
    if current == 0 and low > 0:
        draft.set_condition(messages.ACTIVE, "False", *messages.DISABLED)
        return draft.decision(0)
    if current > high:
        return draft.rescale(high, messages.ABOVE_LIMIT)
    if current < low:
        return draft.rescale(low, messages.BELOW_LIMIT)
    try:
        proposals = _evaluate_metrics(view)
    except MetricUnavailable as error:
        draft.set_condition(messages.ACTIVE, "False", messages.NO_METRIC, messages.no_count(error.message))
        draft.record_event("Warning", messages.NO_METRIC, error.message)
        return draft.decision(current)
    highest = max(proposals, key=lambda proposal: proposal.replicas)
    draft.set_condition(messages.ACTIVE, "True", *messages.found_metric(highest.metric))
    draft.metrics = [proposal.current for proposal in proposals]
    desired = draft.clamp(highest.replicas, low, high)
    return draft.rescale(desired, messages.above(highest.metric) if desired > current else messages.BELOW)


def decide_without_scale(hpa: Object, reason: str, now: datetime) -> AutoscalerDecision:
    """The decision when the target's scale subresource cannot be read."""
    draft = _AutoscalerStatus(AutoscalerView(hpa, 0, [], {}, ScaleHistory(), now))
    draft.set_condition(messages.ABLE, "False", messages.NO_SCALE, messages.no_scale(reason))
    draft.record_event("Warning", messages.NO_SCALE, reason)
    return draft.decision(0)


def _evaluate_metrics(view: AutoscalerView) -> list[MetricProposal]:
    return [
        evaluate_metric(metric, view.pods, view.usage, view.current) for metric in view.hpa["spec"].get("metrics") or ()
    ]


class _AutoscalerStatus:
    """The status being built, with the events to record."""

    def __init__(self, view: AutoscalerView) -> None:
        self._view = view
        self._status = dict(view.hpa.get("status") or {})
        self._conditions: list[Object] = [dict(condition) for condition in self._status.get("conditions") or ()]
        self._events: list[Event] = []
        self._history = view.history
        self.metrics: list[Object] = []

    def set_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        """Set a condition. lastTransitionTime changes only with the condition's status."""
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        for condition in self._conditions:
            if condition["type"] == kind:
                if condition["status"] != status:
                    condition["lastTransitionTime"] = to_rfc3339(self._view.now)
                condition.update(new)
                return
        self._conditions.append({**new, "lastTransitionTime": to_rfc3339(self._view.now)})

    def record_event(self, kind: Any, reason: str, message: str) -> None:
        self._events.append(Event(kind, reason, message))

    def clamp(self, proposed: int, low: int, high: int) -> int:
        """Apply stabilization, scaling policies and the replica limits to the proposed count."""
        view = self._view
        keep = behavior.history_seconds(view.hpa)
        # The current count is the first recommendation, so that a new autoscaler does not scale down at once.
        history = view.history if view.history.recommended else view.history.recommend(view.now, view.current, keep)
        desired = behavior.stabilize(view.hpa, history, view.now, view.current, proposed)
        self._history = history.recommend(view.now, proposed, keep)
        if desired > proposed:
            self.set_condition(messages.ABLE, "True", *messages.STABILIZED)
        desired, limited = behavior.limit_rate(view.hpa, view.history, view.now, view.current, desired)
        if desired > high:
            desired, limited = high, messages.TOO_MANY
        elif desired < low:
            desired, limited = low, messages.TOO_FEW
        self.set_condition(messages.LIMITED, "True" if limited else "False", *(limited or messages.IN_RANGE))
        return desired

    def rescale(self, desired: int, reason: str) -> AutoscalerDecision:
        view = self._view
        if desired == view.current:
            return self.decision(desired)
        self.set_condition(messages.ABLE, "True", *messages.rescaling(desired))
        self.record_event("Normal", messages.RESCALED, messages.rescaled(desired, reason))
        self._status["lastScaleTime"] = to_rfc3339(view.now)
        self._history = self._history.change(view.now, desired - view.current, behavior.history_seconds(view.hpa))
        decision = self.decision(desired)
        decision.replicas = desired
        return decision

    def decision(self, desired: int) -> AutoscalerDecision:
        view, generation = self._view, self._view.hpa["metadata"].get("generation")
        self._status |= {"currentReplicas": view.current, "desiredReplicas": desired, "conditions": self._conditions}
        self._status["currentMetrics"] = self.metrics or None
        if generation:
            self._status["observedGeneration"] = generation
        return AutoscalerDecision(self._status, events=self._events, history=self._history)
