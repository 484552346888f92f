"""What is compared of a case: the state of each workload and the usage of each queue, as short texts.

A workload: `-` pending, `finished`, `gone`, or its pod sets with counts, flavors and usage, such as `2*cpu=f0:4`; with
`!` and the reason if it is evicted and still holds its quota. `~2` says how often it was evicted. A queue: the quota
that is reserved in it, and how much of it is borrowed; only at the end, because Kueue's statuses of queues are late.
What changed from one observation to the next is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Object = dict[str, Any]
States = dict[str, str]


def workload_state(obj: Object, prefix: str) -> str:
    status = obj.get("status") or {}
    conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
    text = "-"
    if _is_true(conditions, "Finished"):
        text = "finished"
    elif _is_true(conditions, "QuotaReserved") and status.get("admission"):
        text = " ".join(map(_pod_set_state, status["admission"]["podSetAssignments"])).replace(prefix, "")
        if _is_true(conditions, "Evicted"):
            reason = "Preempted" if _is_true(conditions, "Preempted") else "Evicted"
            text += f" !{conditions[reason]['reason']}"
    evictions = sum(entry["count"] for entry in (status.get("schedulingStats") or {}).get("evictions") or ())
    return f"{text} ~{evictions}" if evictions else text


def _pod_set_state(assignment: Object) -> str:
    usage = assignment.get("resourceUsage") or {}
    flavors = sorted((assignment.get("flavors") or {}).items())
    return f"{assignment.get('count')}*" + ",".join(f"{name}={flavor}:{usage[name]}" for name, flavor in flavors)


def queue_state(obj: Object, prefix: str) -> str:
    return " ".join(
        f"{flavor['name'].removeprefix(prefix)}/{resource['name']}={resource['total']}"
        + (f"+{resource['borrowed']}" if resource.get("borrowed", "0") != "0" else "")
        for flavor in (obj.get("status") or {}).get("flavorsReservation") or ()
        for resource in flavor["resources"]
        if resource.get("total", "0") != "0"
    )


def holds_evicted_quota(obj: Object) -> bool:
    conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions") or ()}
    is_evicted = _is_true(conditions, "Evicted") and not _is_true(conditions, "Finished")
    return is_evicted and _is_true(conditions, "QuotaReserved")


def is_deactivated(obj: Object) -> bool:
    """Kueue counts the quota of a deactivated workload as free at once, we when its pods have stopped."""
    return (obj.get("spec") or {}).get("active", True) is False


def reserved_at(obj: Object) -> int | None:
    """When a workload got the quota that it holds, in seconds since 1970."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry["type"] == "QuotaReserved" and entry["status"] == "True":
            return int(datetime.fromisoformat(entry["lastTransitionTime"]).timestamp())
    return None


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> States:
    return {name: state for name, state in sorted(after.items()) if before.get(name, "") != state}


def _is_true(conditions: Mapping[str, Object], type: str) -> bool:
    return type in conditions and conditions[type]["status"] == "True"
