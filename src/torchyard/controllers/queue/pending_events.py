"""Events that tell users of a job why its workload is pending, since users look at the job first."""

from __future__ import annotations

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.api.queue.messages import ReasonMessage


class PendingEvents:
    """One event for each reason: the message of the same reason changes with every change of the quota's usage."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}  # the last reason, by uid of the workload

    def workload_changed(self, change: str, workload: Object) -> None:
        """Forget the reasons of a workload that got quota: when it is pending again, they are reported again."""
        conditions = (workload.get("status") or {}).get("conditions") or ()
        if change == "DELETED" or is_true(conditions, messages.QUOTA_RESERVED):
            self._reported.pop(workload["metadata"]["uid"], None)

    def next_event(self, workload: Object, cause: ReasonMessage | None = None) -> ReasonMessage | None:
        """Why a workload is pending, if that was not reported yet. `cause`: more exactly than its condition says."""
        conditions, uid = (workload.get("status") or {}).get("conditions") or (), workload["metadata"]["uid"]
        reserved, evicted = find(conditions, messages.QUOTA_RESERVED), find(conditions, messages.EVICTED)
        if reserved is None or reserved["status"] == "True":
            return None
        if evicted is not None and evicted["message"] == reserved["message"]:
            return None  # the job got this message when it was stopped, and no cycle has looked at it since
        why = cause or ReasonMessage(reserved["reason"], reserved["message"])
        if why.reason == self._reported.get(uid):
            return None
        self._reported[uid] = why.reason
        return why
