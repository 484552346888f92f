"""What the status of a workload may say: counts that are not negative and do not exceed one another."""

from __future__ import annotations

from torchyard.api import checks, faults
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault

_WHOLE = "cannot be greater than status.replicas"


def _check_counts(
    new: Object, counts: tuple[str, ...], within: tuple[str, ...], found: list[Fault], *, ready: str
) -> None:
    status = new.get("status") or {}
    checks.nonnegative_fields(status, counts, "status", found)
    replicas = status.get("replicas") or 0
    for name in within:
        count = status.get(name) or 0
        if count > replicas:
            found.append(faults.invalid(f"status.{name}", count, _WHOLE))
    available = status.get("availableReplicas") or 0
    if available > (status.get("readyReplicas") or 0):
        found.append(faults.invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))


def _check_collisions(new: Object, old: Object, found: list[Fault]) -> None:
    count, before = ((one.get("status") or {}).get("collisionCount") for one in (new, old))
    checks.nonnegative(count, "status.collisionCount", found)
    if before is not None and (count is None or count < before):
        found.append(faults.invalid("status.collisionCount", count or 0, "cannot be decremented"))


def validate_deployment_status(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    counts = (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    )
    within = ("updatedReplicas", "readyReplicas", "availableReplicas")
    _check_counts(new, counts, within, found, ready="readyReplicas")
    _check_collisions(new, old, found)
    return found


def validate_replica_set_status(new: Object, _old: Object) -> list[Fault]:
    """ReplicaSets and ReplicationControllers alike."""
    found: list[Fault] = []
    counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    _check_counts(new, counts, counts[1:4], found, ready="readyReplicas")
    return found


def validate_stateful_set_status(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    counts = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    _check_counts(new, (*counts, "observedGeneration"), counts[1:], found, ready="status.readyReplicas")
    _check_collisions(new, old, found)
    return found


def validate_daemon_set_status(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    counts = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    )
    checks.nonnegative_fields(new.get("status") or {}, counts, "status", found)
    _check_collisions(new, old, found)
    return found
