"""The time to live of a finished Job."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.job import messages
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339


def seconds_left(job: Object, now: datetime) -> float | None:
    """Seconds until the job expires, counted from its final condition; None without a TTL."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    for condition in (job.get("status") or {}).get("conditions") or ():
        if (
            ttl is not None
            and condition["type"] in (messages.COMPLETE, messages.FAILED)
            and condition["status"] == "True"
        ):
            return float(ttl) - (now - parse_rfc3339(condition["lastTransitionTime"])).total_seconds()
    return None
