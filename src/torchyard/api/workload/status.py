"""Validation of workload status updates: counts are not negative and do not exceed one another."""

from __future__ import annotations

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_WHOLE = "cannot be greater than status.replicas"


def _check_counts(
    new: Object, counts: tuple[str, ...], within: tuple[str, ...], errs: list[FieldError], *, ready: str
) -> None:
    status = new.get("status") or {}
    checks.nonnegative_fields(status, counts, "status", errs)
    replicas = status.get("replicas") or 0
    for name in within:
        count = status.get(name) or 0
        if count > replicas:
            errs.append(field_errors.invalid(f"status.{name}", count, _WHOLE))
    available = status.get("availableReplicas") or 0
    if available > (status.get("readyReplicas") or 0):
        errs.append(field_errors.invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))


def _check_collisions(new: Object, old: Object, errs: list[FieldError]) -> None:
    count, before = ((obj.get("status") or {}).get("collisionCount") for obj in (new, old))
    checks.nonnegative(count, "status.collisionCount", errs)
    if before is not None and (count is None or count < before):
        errs.append(field_errors.invalid("status.collisionCount", count or 0, "cannot be decremented"))


def validate_deployment_status(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    counts = (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    )
    within = ("updatedReplicas", "readyReplicas", "availableReplicas")
    _check_counts(new, counts, within, errs, ready="readyReplicas")
    _check_collisions(new, old, errs)
    return errs


def validate_replica_set_status(new: Object, _old: Object) -> list[FieldError]:
    """Validate the status of a ReplicaSet or ReplicationController."""
    errs: list[FieldError] = []
    counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    _check_counts(new, counts, counts[1:4], errs, ready="readyReplicas")
    return errs


def validate_stateful_set_status(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    counts = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    _check_counts(new, (*counts, "observedGeneration"), counts[1:], errs, ready="status.readyReplicas")
    _check_collisions(new, old, errs)
    return errs


def validate_daemon_set_status(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
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
    checks.nonnegative_fields(new.get("status") or {}, counts, "status", errs)
    _check_collisions(new, old, errs)
    return errs
