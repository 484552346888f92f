"""Conditions of an object: found, and set so that the time changes only when the status does."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.objects import Object


def find(conditions: Iterable[Object], type: str) -> Object | None:
    for one in conditions:
        if one["type"] == type:
            return one
    return None


def is_true(conditions: Iterable[Object], type: str) -> bool:
    for one in conditions:
        if one["type"] == type:
            return bool(one["status"] == "True")
    return False


def has_true_condition(obj: Object, type: str) -> bool:
    """Whether an object's status says so."""
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
    """The conditions with one of them set; its place stays what it was."""
    found = list(conditions)
    made: Object = {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message[:32768],
        "lastTransitionTime": now,
    }
    if generation is not None:
        made["observedGeneration"] = generation
    for index, one in enumerate(found):
        if one["type"] == type:
            if one["status"] == made["status"]:
                made["lastTransitionTime"] = one["lastTransitionTime"]
            found[index] = made
            return found
    return [*found, made]
