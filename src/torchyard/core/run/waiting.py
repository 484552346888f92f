"""Why a job does not run yet: what its pods, its workload and its queue report."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_statuses
from torchyard.api.queue.names import QUEUE_NAME

QUOTA_RESERVED, ADMITTED = "QuotaReserved", "Admitted"


def pending_reason(pod: Object) -> str:
    """Why a pod does not run yet, as its conditions and containers say; empty if nothing holds it up."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    for container in container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    return ""


def queue_name(obj: Object) -> str:
    """The LocalQueue that a job names; empty if it names none."""
    return str((obj["metadata"].get("labels") or {}).get(QUEUE_NAME, ""))


def queue_reason(workload: Object | None) -> str:
    """Why a queued job is not admitted, as its workload says; empty if it is admitted."""
    if workload is None:
        return "no workload has been created for it yet"
    conditions = {condition["type"]: condition for condition in (workload.get("status") or {}).get("conditions") or ()}
    if (conditions.get(ADMITTED) or {}).get("status") == "True":
        return ""
    if not (workload.get("spec") or {}).get("active", True):
        return "it is on hold"
    for kind in (QUOTA_RESERVED, ADMITTED, "Evicted"):
        message = (conditions.get(kind) or {}).get("message")
        if message and (kind == "Evicted" or conditions[kind]["status"] != "True"):
            return str(message)
    return "its queue has not looked at it yet"
