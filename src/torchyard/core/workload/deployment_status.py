"""The status of a Deployment: counts, availability and progress."""

from __future__ import annotations

from datetime import datetime, timedelta

from torchyard.api import conditions
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.api.workload import messages
from torchyard.core.workload.deployment_view import DeploymentView, count, total_size


class Conditions:
    """The conditions of a Deployment. One that changes moves to the end, as in upstream."""

    def __init__(self, present: list[Object], now: datetime) -> None:
        self.items, self._now = list(present), to_rfc3339(now)

    def find(self, kind: str) -> Object | None:
        return conditions.find(self.items, kind)

    def set(self, kind: str, status: str, reason: str, message: str, *, renew: bool = False) -> None:
        """Nothing happens if status and reason are already so, unless `renew`."""
        new = {
            "type": kind,
            "status": status,
            "lastUpdateTime": self._now,
            "lastTransitionTime": self._now,
            "reason": reason,
            "message": message,
        }
        self.put(new, renew=renew)

    def put(self, new: Object, *, renew: bool = False) -> None:
        before = self.find(new["type"])
        if before is not None and before["status"] == new["status"]:
            if before.get("reason") == new["reason"] and not renew:
                return
            new = {**new, "lastTransitionTime": before["lastTransitionTime"]}
        self.remove(new["type"])
        self.items.append(new)

    def remove(self, kind: str) -> None:
        self.items = [condition for condition in self.items if condition["type"] != kind]


def compute_status(view: DeploymentView, all_sets: list[Object], new: Object | None, held: Conditions) -> Object:
    """The counts and the Available condition."""
    available = sum(count(replica_set, "availableReplicas") for replica_set in all_sets)
    counts = {
        "observedGeneration": view.deployment["metadata"].get("generation", 0),
        "replicas": sum(count(replica_set, "replicas") for replica_set in all_sets),
        "updatedReplicas": count(new, "replicas"),
        "readyReplicas": sum(count(replica_set, "readyReplicas") for replica_set in all_sets),
        "availableReplicas": available,
        "unavailableReplicas": max(total_size(all_sets) - available, 0),
    }
    enough = available >= view.replicas - view.max_unavailable
    words = messages.MINIMUM_AVAILABLE if enough else messages.MINIMUM_UNAVAILABLE
    held.set(messages.AVAILABLE, "True" if enough else "False", *words)
    status: Object = {name: number for name, number in counts.items() if number}
    if view.status.get("collisionCount") is not None:
        status["collisionCount"] = view.status["collisionCount"]
    return status


def is_complete(view: DeploymentView, status: Object) -> bool:
    names = ("updatedReplicas", "replicas", "availableReplicas")
    generation = view.deployment["metadata"].get("generation", 0)
    return (
        all((status.get(name) or 0) == view.replicas for name in names)
        and (status.get("observedGeneration") or 0) >= generation
    )


def estimate_progress(view: DeploymentView, status: Object, new: Object | None, held: Conditions) -> None:
    """Set the Progressing condition after a look at a rollout."""
    if not view.has_progress_deadline:
        held.remove(messages.PROGRESSING)
        return
    current = held.find(messages.PROGRESSING)
    is_over = current is not None and current["reason"] == messages.NEW_REPLICA_SET_AVAILABLE
    if is_over and status.get("replicas", 0) == status.get("updatedReplicas", 0):
        return
    name = new["metadata"]["name"] if new else None
    if is_complete(view, status):
        text = messages.progress(view.name, name, "has successfully progressed")
        held.set(messages.PROGRESSING, "True", messages.NEW_REPLICA_SET_AVAILABLE, text)
    elif _has_progressed(view.status, status):
        text = messages.progress(view.name, name, "is progressing")
        # Renewed each time, because the deadline counts from the last progress.
        held.set(messages.PROGRESSING, "True", messages.REPLICA_SET_UPDATED, text, renew=True)
    elif _has_timed_out(view, current):
        text = messages.progress(view.name, name, "has timed out progressing")
        held.set(messages.PROGRESSING, "False", messages.PROGRESS_DEADLINE_EXCEEDED, text)


def _has_progressed(before: Object, after: Object) -> bool:
    def old_replicas(status: Object) -> int:
        return int(status.get("replicas") or 0) - int(status.get("updatedReplicas") or 0)

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_replicas(after) < old_replicas(before) or any(
        (after.get(name) or 0) > (before.get(name) or 0) for name in grown
    )


def _has_timed_out(view: DeploymentView, current: Object | None) -> bool:
    if current is None or current["reason"] == messages.NEW_REPLICA_SET_AVAILABLE:
        return False
    return current["reason"] == messages.PROGRESS_DEADLINE_EXCEEDED or deadline(view, current) < view.now


def deadline(view: DeploymentView, current: Object) -> datetime:
    since = parse_rfc3339(current.get("lastUpdateTime") or current["lastTransitionTime"])
    return since + timedelta(seconds=view.spec["progressDeadlineSeconds"])


def seconds_until_deadline(view: DeploymentView, status: Object) -> float | None:
    """When to look again although nothing has changed: one second after the progress deadline."""
    current = conditions.find(status.get("conditions") or (), messages.PROGRESSING)
    if not view.has_progress_deadline or current is None or is_complete(view, status):
        return None
    if current["reason"] in (messages.PROGRESS_DEADLINE_EXCEEDED, messages.NEW_REPLICA_SET_AVAILABLE):
        return None
    return max((deadline(view, current) - view.now).total_seconds(), 0.0) + 1


def copy_failure(all_sets: list[Object], new: Object | None, held: Conditions) -> None:
    """A ReplicaSet that cannot create or delete pods: the new one's condition before the others'."""
    for replica_set in filter(None, [new, *all_sets]):
        failure = conditions.find((replica_set.get("status") or {}).get("conditions") or (), messages.REPLICA_FAILURE)
        if failure is not None:
            held.put({**failure, "lastUpdateTime": failure["lastTransitionTime"]})
            return
    held.remove(messages.REPLICA_FAILURE)
