"""The delay before a Job replaces a failed pod: 10 s, doubled with every failure since the last success."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, shift

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0


def delay_seconds(failures: int) -> float:
    if failures <= 0:
        return 0.0
    return float(min(FIRST_SECONDS * 2 ** min(failures - 1, 30), LONGEST_SECONDS))


def seconds_left(failures: int, last: datetime | None, now: datetime) -> float:
    if last is None:
        return 0.0
    return max(0.0, delay_seconds(failures) - (now - last).total_seconds())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures since the last success. The controller keeps it; after a restart it is rebuilt from the pods."""

    failures: int = 0
    last: datetime | None = None

    def after(self, succeeded: Iterable[Object], failed: Iterable[Object]) -> Backoff:
        """The backoff after these pods have finished."""
        good = [ended_at(pod) for pod in succeeded]
        bad = [ended_at(pod) for pod in failed]
        if good:
            newest = max(good)
            bad = [moment for moment in bad if moment > newest]
            return Backoff(len(bad), max(bad, default=None))
        return Backoff(self.failures + len(bad), max(bad, default=self.last))

    def seconds_left(self, now: datetime) -> float:
        return seconds_left(self.failures, self.last, now)


NO_FAILURES = Backoff()


def ended_at(pod: Object) -> datetime:
    """When a pod finished: by its containers, its Ready condition, its deletion or its creation, whichever is known."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    ends = [((container.get("state") or {}).get("terminated") or {}).get("finishedAt") for container in containers]
    finished = [parse_rfc3339(end) for end in ends if end]
    if finished and len(finished) == len(ends):
        return max(finished)
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "False" and condition.get("lastTransitionTime"):
            return parse_rfc3339(condition["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        return shift(parse_rfc3339(metadata["deletionTimestamp"]), -(metadata.get("deletionGracePeriodSeconds") or 0))
    return parse_rfc3339(metadata["creationTimestamp"])
