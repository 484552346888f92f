"""What to do about a ReplicaSet or ReplicationController: how many pods to create, which to delete, and its status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api import conditions, selectors
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active, is_ready
from torchyard.api.times import to_rfc3339
from torchyard.api.workload import messages
from torchyard.core.workload.pods import earliest, is_available, seconds_until_available
from torchyard.core.workload.ranking import surplus

# The most pods that one pass creates or deletes.
BURST = 500


@dataclass(slots=True)
class ReplicaSetDecision:
    create: int = 0
    delete: list[Object] = field(default_factory=list)
    wake_after: float | None = None  # seconds


def decide(replica_set: Object, pods: Iterable[Object], related: Iterable[Object], now: datetime) -> ReplicaSetDecision:
    """`pods` are those it controls; `related` those of all ReplicaSets with the same owner."""
    active, spec = [pod for pod in pods if is_active(pod)], replica_set["spec"]
    minimum = spec.get("minReadySeconds") or 0
    decision = ReplicaSetDecision(wake_after=earliest(*(seconds_until_available(pod, minimum, now) for pod in active)))
    if is_terminating(replica_set):
        return decision
    difference = len(active) - spec["replicas"]
    if difference < 0:
        decision.create = min(-difference, BURST)
    elif difference > 0:
        decision.delete = surplus(active, related, min(difference, BURST), now)
    return decision


def status(replica_set: Object, pods: Iterable[Object], failure: str | None, now: datetime) -> Object:
    """`failure`: why a pod could not be created or deleted; None if all could."""
    active, spec = [pod for pod in pods if is_active(pod)], replica_set["spec"]
    own_labels = selectors.from_map((spec["template"].get("metadata") or {}).get("labels"))
    ready = [pod for pod in active if is_ready(pod)]
    minimum = spec.get("minReadySeconds") or 0
    before = replica_set.get("status") or {}
    counts = {
        "fullyLabeledReplicas": sum(own_labels.matches(pod["metadata"].get("labels")) for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": sum(is_available(pod, minimum, now) for pod in ready),
        "observedGeneration": replica_set["metadata"].get("generation", 0),
    }
    new: Object = {"replicas": len(active), **{name: count for name, count in counts.items() if count}}
    own_conditions = _conditions(before.get("conditions") or [], failure, len(active) - spec["replicas"], now)
    return {**new, "conditions": own_conditions} if own_conditions else new


def _conditions(before: list[Object], failure: str | None, difference: int, now: datetime) -> list[Object]:
    failed = conditions.find(before, messages.REPLICA_FAILURE)
    if failure is None:
        return [condition for condition in before if condition is not failed]
    if failed is not None:
        return before
    reason = messages.NOT_CREATED if difference < 0 else messages.NOT_DELETED
    return conditions.with_condition(
        before, messages.REPLICA_FAILURE, True, reason=reason, message=failure, now=to_rfc3339(now)
    )
