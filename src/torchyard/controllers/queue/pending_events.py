"""Why a workload waits, for whoever waits with it: a user looks at the job first.

Told once for every reason: the words of one and the same reason change with whatever comes and goes around it.
"""

from __future__ import annotations

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages


class Reasons:
    def __init__(self) -> None:
        self._told: dict[str, str] = {}  # by uid of the workload

    def seen(self, change: str, workload: Object) -> None:
        """Who is admitted and waits again later is told again."""
        if change == "DELETED" or is_true(
            (workload.get("status") or {}).get("conditions") or (), messages.QUOTA_RESERVED
        ):
            self._told.pop(workload["metadata"]["uid"], None)

    def news(self, workload: Object) -> tuple[str, str] | None:
        """The reason and the words for it, if that reason was not given yet."""
        conditions, uid = (workload.get("status") or {}).get("conditions") or (), workload["metadata"]["uid"]
        waits, evicted = find(conditions, messages.QUOTA_RESERVED), find(conditions, messages.EVICTED)
        if waits is None or waits["status"] == "True" or waits["reason"] == self._told.get(uid):
            return None
        if evicted is not None and evicted["message"] == waits["message"]:
            return None  # it was told when it was stopped; nobody has looked at it since
        self._told[uid] = waits["reason"]
        return waits["reason"], waits["message"]
