"""The status of a PyTorchJob under construction: counters, times, and the rules for conditions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from torchyard.api.conditions import is_true
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import phase
from torchyard.api.pytorchjob import messages, names
from torchyard.api.times import parse_rfc3339, shift, to_rfc3339
from torchyard.core.pytorchjob.view import PyTorchJobView

_EXCLUSIVE = {messages.RUNNING: messages.RESTARTING, messages.RESTARTING: messages.RUNNING}


class PyTorchJobStatus:
    """Starts as the stored status; `object()` returns the status to store."""

    def __init__(self, stored: Object | None, now: datetime) -> None:
        stored = stored or {}
        self._rest = dict(stored)
        self._now = to_rfc3339(now)
        self.conditions: list[Object] = [dict(condition) for condition in stored.get("conditions") or ()]
        self.replicas: dict[str, Object] = {
            kind: dict(counts or {}) for kind, counts in (stored.get("replicaStatuses") or {}).items()
        }

    def object(self) -> Object:
        status = dict(self._rest)
        if self.conditions:
            status["conditions"] = self.conditions
        if self.replicas:
            status["replicaStatuses"] = self.replicas
        return status

    def holds(self, kind: str) -> bool:
        return is_true(self.conditions, kind)

    @property
    def finished(self) -> bool:
        return any(self.holds(kind) for kind in messages.TERMINAL)

    @property
    def start_time(self) -> datetime | None:
        return _time(self._rest.get("startTime"))

    @property
    def completion_time(self) -> datetime | None:
        """When the job finished. A status written by upstream may lack the time; the terminal condition has it too."""
        ended = [
            condition.get("lastTransitionTime")
            for condition in self.conditions
            if condition["type"] in messages.TERMINAL
        ]
        return _time(self._rest.get("completionTime") or (ended[-1] if ended else None))

    def start(self, pods: Iterable[Object] = ()) -> None:
        """Set the start time: now, or the creation of the first pod if that is earlier."""
        creation_times = (pod["metadata"].get("creationTimestamp") for pod in pods)
        self._rest["startTime"] = min([self._now, *(created for created in creation_times if created)])

    def set_reconcile_time(self) -> None:
        """Upstream sets this only while Volcano queues the PodGroup. Set it once instead of at every pass."""
        self._rest.setdefault("lastReconcileTime", self._now)

    def set(self, kind: str, reason: str, message: str, *, status: str = "True") -> bool:
        """Add a condition by upstream's rules; terminal conditions are final.

        Returns whether status or reason changed.
        """
        if self.finished:
            return False
        previous = next((current for current in self.conditions if current["type"] == kind), None)
        if previous is not None and (previous["status"], previous.get("reason")) == (status, reason):
            return False
        is_same_status = previous is not None and previous["status"] == status
        since = previous.get("lastTransitionTime", self._now) if previous is not None and is_same_status else self._now
        dropped = (kind, _EXCLUSIVE.get(kind))
        self.conditions = [condition for condition in self.conditions if condition["type"] not in dropped]
        if kind in messages.TERMINAL:
            for condition in self.conditions:
                if condition["type"] == messages.RUNNING:
                    condition["status"] = "False"
            self._rest["completionTime"] = self._now
        self.conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastUpdateTime": self._now,
                "lastTransitionTime": since,
            }
        )
        return True

    def count(self, view: PyTorchJobView) -> None:
        """Set the counters from the pods. Pending pods are not counted, terminating ones count as failed.

        A pod that the suspension deleted is not counted, whatever its end: the job has started anew.
        """
        self.replicas = {}
        for kind, spec in view.replicas.items():
            size = int(spec["replicas"])
            slots = [(slot, pod) for slot, pod in view.pods.items() if slot[0] == kind and slot[1] < size]
            pods = [pod for _, pod in slots if not self._is_leftover(pod)]
            counts = {
                "active": sum(phase(pod) == "Running" and not is_terminating(pod) for pod in pods),
                "succeeded": sum(phase(pod) == "Succeeded" for pod in pods),
                "failed": sum(
                    phase(pod) == "Failed" or (phase(pod) == "Running" and is_terminating(pod)) for pod in pods
                ),
            }
            replica_status: Object = {name: number for name, number in counts.items() if number}
            replica_status["selector"] = names.selector_text(names.identity_labels(view.name, kind))
            self.replicas[kind] = replica_status

    def _is_leftover(self, pod: Object) -> bool:
        """Whether a pod is from before the job was resumed: it ends because of the suspension, however it ends.

        Times have whole seconds, so that a pod can be created, deleted and the job resumed at the same time.
        """
        if not is_terminating(pod):
            return False
        created, start = pod["metadata"].get("creationTimestamp"), self._rest.get("startTime")
        return bool(created and start and created < start) or self._was_deleted_before_resume(pod)

    def _was_deleted_before_resume(self, pod: Object) -> bool:
        times = [_resume_time(condition) for condition in self.conditions]
        resumed = next((time for time in times if time is not None), None)
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        return resumed is not None and shift(parse_rfc3339(pod["metadata"]["deletionTimestamp"]), -grace) <= resumed

    def number(self, kind: str, counter: str) -> int:
        return int((self.replicas.get(kind) or {}).get(counter) or 0)

    def clear_active(self) -> None:
        """Reset the active counters."""
        for counts in self.replicas.values():
            counts.pop("active", None)

    def count_active_as_succeeded(self) -> None:
        """After success, replicas that still run count as succeeded."""
        for counts in self.replicas.values():
            active = int(counts.pop("active", 0) or 0)
            if active:
                counts["succeeded"] = int(counts.get("succeeded") or 0) + active


def _resume_time(condition: Object) -> datetime | None:
    is_resumed = condition["type"] == messages.SUSPENDED and condition["status"] == "False"
    return _time(condition.get("lastTransitionTime")) if is_resumed else None


def _time(text: str | None) -> datetime | None:
    return parse_rfc3339(text) if text else None
