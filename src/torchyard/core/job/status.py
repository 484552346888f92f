"""The status of a Job under construction: conditions, times, counters, and finished pods not yet counted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from torchyard.api.job.status import is_finished
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339


class JobStatus:
    """Starts as the stored status; `object()` returns the status to store."""

    def __init__(self, stored: Object, now: datetime) -> None:
        self._rest = dict(stored)
        self._now = to_rfc3339(now)
        self.conditions: list[Object] = [dict(condition) for condition in stored.get("conditions") or ()]
        uncounted = stored.get("uncountedTerminatedPods") or {}
        self.succeeded, self.failed = int(stored.get("succeeded") or 0), int(stored.get("failed") or 0)
        # Uids of finished pods that lose their finalizer now. They are counted when the finalizer is gone.
        self.uncounted_succeeded: list[str] = list(uncounted.get("succeeded") or ())
        self.uncounted_failed: list[str] = list(uncounted.get("failed") or ())
        self.active = self.ready = self.terminating = 0
        self.completed_indexes = ""
        self.failed_indexes: str | None = None

    def object(self) -> Object:
        """Counters that are zero are omitted where upstream omits them."""
        uncounted = {"succeeded": self.uncounted_succeeded, "failed": self.uncounted_failed}
        status = {
            **self._rest,
            "active": self.active,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "completedIndexes": self.completed_indexes,
            "conditions": self.conditions,
        }
        status = {key: value for key, value in status.items() if value or key not in _OMIT_EMPTY}
        status |= {"ready": self.ready, "terminating": self.terminating}
        status["uncountedTerminatedPods"] = {key: value for key, value in uncounted.items() if value}
        if self.failed_indexes is not None:
            status["failedIndexes"] = self.failed_indexes
        return status

    def condition(self, kind: str) -> Object | None:
        """The condition of this type, if its status is True."""
        return next(
            (condition for condition in self.conditions if condition["type"] == kind and condition["status"] == "True"),
            None,
        )

    @property
    def is_finished(self) -> bool:
        return is_finished({"conditions": self.conditions})

    @property
    def start_time(self) -> datetime | None:
        text = self._rest.get("startTime")
        return parse_rfc3339(text) if text else None

    def start(self) -> None:
        self._rest["startTime"] = self._now

    def complete(self) -> None:
        self._rest["completionTime"] = self._now

    def set(self, kind: str, reason: str, message: str, *, holds: bool = True) -> bool:
        """Add or change a condition; returns whether anything changed.

        A condition that was never set is not added as False.
        """
        previous = next((condition for condition in self.conditions if condition["type"] == kind), None)
        if previous is None and not holds:
            return False
        new = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
        if previous is not None and all(previous.get(key) == value for key, value in new.items()):
            return False
        new |= {"lastProbeTime": self._now, "lastTransitionTime": self._now}
        if previous is None:
            self.conditions.append(new)
        else:
            self.conditions[self.conditions.index(previous)] = new
        return True

    @property
    def has_uncounted(self) -> bool:
        return bool(self.uncounted_succeeded or self.uncounted_failed)

    def count_released(self, tracked: Iterable[str]) -> None:
        """Count pods that have lost their finalizer, so that each is counted exactly once."""
        still_tracked = set(tracked)
        succeeded = [pod_uid for pod_uid in self.uncounted_succeeded if pod_uid in still_tracked]
        failed = [pod_uid for pod_uid in self.uncounted_failed if pod_uid in still_tracked]
        self.succeeded += len(self.uncounted_succeeded) - len(succeeded)
        self.failed += len(self.uncounted_failed) - len(failed)
        self.uncounted_succeeded, self.uncounted_failed = succeeded, failed


_OMIT_EMPTY = ("active", "succeeded", "failed", "completedIndexes", "conditions")


def with_fewer_active(status: Object, missing: int) -> Object:
    """The status when `missing` of the planned pods could not be created."""
    active = int(status.get("active") or 0) - missing
    rest = {key: value for key, value in status.items() if key != "active"}
    return {**rest, "active": active} if active > 0 else rest
