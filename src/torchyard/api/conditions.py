"""Finding and setting conditions. lastTransitionTime changes only when the status changes."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object


def find(conditions: Iterable[Object], type: str) -> Object | None:
    for condition in conditions:
        if condition["type"] == type:
            return condition
    return None


def is_true(conditions: Iterable[Object], type: str) -> bool:
    for condition in conditions:
        if condition["type"] == type:
            return bool(condition["status"] == "True")
    return False


def has_true_condition(obj: Object, type: str) -> bool:
    """Whether the object's status has this condition with status True."""
    return is_true((obj.get("status") or {}).get("conditions") or (), type)


def with_condition(
    conditions: Iterable[Object],
    type: str,
    status: bool,
    *,
    reason: str,
    message: str,
    now: str,
    generation: int | None = None,
) -> list[Object]:
    """Return the conditions with one of them set; the order does not change."""
    updated = list(conditions)
    new: Object = {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message[:32768],
        "lastTransitionTime": now,
    }
    if generation is not None:
        new["observedGeneration"] = generation
    for index, condition in enumerate(updated):
        if condition["type"] == type:
            if condition["status"] == new["status"]:
                new["lastTransitionTime"] = condition["lastTransitionTime"]
            updated[index] = new
            return updated
    return [*updated, new]
