"""What becomes of a workload over time: reserved, admitted, evicted, released, requeued. Statuses in, statuses out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from torchyard.api.conditions import find, is_true, with_condition
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.api.times import to_rfc3339
from torchyard.core.events import Event
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.resources import shown
from torchyard.core.queue.specs import Queue
from torchyard.core.queue.workload_info import seconds


@dataclass(frozen=True)
class QueueSettings:
    """waitForPodsReady and its requeuing strategy, with the figures Kueue ships."""

    pods_ready: bool = True
    timeout: float = 30 * 60
    recovery: float = 30 * 60
    backoff_base: float = 60
    backoff_most: float = 3600
    backoff_limit: int | None = None
    backoff_jitter: float = 0.0001  # at most so much of a pause is added to it
    block_admission: bool = False


class Status:
    """A workload's status that is being changed."""

    def __init__(self, obj: Object, now: float) -> None:
        self.value: Object = dict(obj.get("status") or {})
        self._now = to_rfc3339(datetime.fromtimestamp(now, UTC))
        self._generation = obj["metadata"].get("generation")

    @property
    def conditions(self) -> list[Object]:
        return list(self.value.get("conditions") or ())

    def set(self, type: str, status: bool, reason: str, message: str) -> None:
        self.value["conditions"] = with_condition(
            self.conditions,
            type,
            status,
            reason=reason,
            message=message,
            now=self._now,
            generation=self._generation,
        )

    def drop(self, type: str) -> None:
        self.value["conditions"] = [one for one in self.conditions if one["type"] != type]

    def reset_checks(self) -> None:
        for_each = self.value.get("admissionChecks") or ()
        if for_each:
            reset = {"state": names.CHECK_PENDING, "message": "Reset to Pending", "lastTransitionTime": self._now}
            self.value["admissionChecks"] = [{"name": one["name"], **reset} for one in for_each]

    def start_checks(self, wanted: Iterable[str]) -> None:
        known = {one["name"]: one for one in self.value.get("admissionChecks") or ()}
        fresh = {"state": names.CHECK_PENDING, "message": "", "lastTransitionTime": self._now}
        self.value["admissionChecks"] = [known.get(name) or {"name": name, **fresh} for name in wanted]


def reserve(obj: Object, queue: Queue, assignment: Assignment, now: float) -> Object:
    """The status of a workload that gets quota; admitted at once where no check has a say."""
    status = Status(obj, now)
    sets = [
        {
            "name": one.name,
            "flavors": one.flavors,
            "resourceUsage": {name: shown(name, one.usage[name]) for name in one.flavors},
            "count": one.count,
        }
        for one in assignment.pod_sets
    ]
    status.value["admission"] = {"clusterQueue": queue.name, "podSetAssignments": sets}
    status.value.pop("resourceRequests", None)
    status.set(messages.QUOTA_RESERVED, True, messages.QUOTA_RESERVED, messages.reserved(queue.name))
    for type in (messages.EVICTED, messages.PREEMPTED):
        if is_true(status.conditions, type):
            status.set(
                type, False, messages.QUOTA_RESERVED, f"Previously: {(find(status.conditions, type) or {})['message']}"
            )
    used = {flavor for flavor, _ in assignment.usage}
    checks = [one.name for one in queue.checks if not one.flavors or one.flavors & used]
    if checks:
        status.start_checks(checks)
    if all(one["state"] == names.CHECK_READY for one in status.value.get("admissionChecks") or ()):
        status.set(messages.ADMITTED, True, messages.ADMITTED, messages.IS_ADMITTED)
    return status.value


def wait(obj: Object, reason: str, message: str, now: float) -> Object:
    status = Status(obj, now)
    status.set(messages.QUOTA_RESERVED, False, reason, message)
    return status.value


def evict(obj: Object, reason: str, message: str, now: float, *, preempted: str = "") -> Object:
    """The workload must stop; its quota is held until it has."""
    status = Status(obj, now)
    status.set(messages.EVICTED, True, reason, message)
    if preempted:
        status.set(messages.PREEMPTED, True, preempted, message)
    stats = {(one["reason"], one["underlyingCause"]): one["count"] for one in _evictions(obj)}
    base, _, cause = reason.partition("DueTo")
    stats[base, cause] = stats.get((base, cause), 0) + 1
    status.value["schedulingStats"] = {
        "evictions": [{"reason": key[0], "underlyingCause": key[1], "count": count} for key, count in stats.items()]
    }
    return status.value


def _evictions(obj: Object) -> list[Object]:
    found: list[Object] = ((obj.get("status") or {}).get("schedulingStats") or {}).get("evictions") or []
    return found


def release(obj: Object, now: float, *, requeue: bool = True) -> Object:
    """The quota is given back: nothing of the workload runs any more."""
    status = Status(obj, now)
    evicted = find(status.conditions, messages.EVICTED)
    why = evicted["message"] if evicted is not None else messages.HAS_NO_RESERVATION
    admitted = find(status.conditions, messages.ADMITTED)
    if admitted is not None and admitted["status"] == "True":
        ran = int(max(0.0, now - seconds(admitted["lastTransitionTime"])))
        past = status.value.get("accumulatedPastExecutionTimeSeconds") or 0
        status.value["accumulatedPastExecutionTimeSeconds"] = past + ran
        status.set(messages.ADMITTED, False, messages.NO_RESERVATION, messages.HAS_NO_RESERVATION)
    status.set(messages.QUOTA_RESERVED, False, messages.PENDING, why)
    status.drop(messages.PODS_READY)
    status.value["admission"] = None
    status.value["reclaimablePods"] = None
    status.reset_checks()
    if requeue and evicted is not None:
        status.set(
            messages.REQUEUED, evicted["reason"] == messages.BY_PREEMPTION, evicted["reason"], evicted["message"]
        )
    return status.value


def finish(obj: Object, reason: str, message: str, now: float) -> Object:
    status = Status(obj, now)
    status.set(messages.FINISHED, True, reason, message)
    return status.value


def pods_ready(obj: Object, is_ready: bool, now: float) -> Object | None:
    """The status that says whether all pods are ready; None if it says so already."""
    known = find((obj.get("status") or {}).get("conditions") or (), messages.PODS_READY)
    was_ready = known is not None and (known["status"] == "True" or known["reason"] == messages.WAIT_FOR_RECOVERY)
    if known is not None and (known["status"] == "True") == is_ready:
        return None
    status = Status(obj, now)
    if is_ready:
        reason = messages.RECOVERED if was_ready else messages.STARTED
        status.set(messages.PODS_READY, True, reason, messages.PODS_ARE_READY)
    elif was_ready:
        status.set(messages.PODS_READY, False, messages.WAIT_FOR_RECOVERY, messages.POD_LOST)
    else:
        status.set(messages.PODS_READY, False, messages.WAIT_FOR_START, messages.PODS_NOT_READY)
    return status.value


@dataclass
class Outcome:
    status: Object | None = None
    deactivate: bool = False
    events: list[Event] = field(default_factory=list)
    wake_after: float | None = None


def look(
    obj: Object, now: float, settings: QueueSettings, *, stops: Callable[[], Mapping[str, str]], has_owner: bool
) -> Outcome:
    """What time, checks and stopped queues do to a workload.

    `stops` gives the policies in force, by kind of queue; it is asked only about a workload that holds quota.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = status.get("conditions") or ()
    outcome = Outcome()
    if is_true(conditions, messages.FINISHED) or obj["metadata"].get("deletionTimestamp"):
        return outcome
    target = find(conditions, messages.DEACTIVATION)
    is_reserved = is_true(conditions, messages.QUOTA_RESERVED) and bool(status.get("admission"))
    if spec.get("active", True) is False:
        if is_reserved and not is_true(conditions, messages.EVICTED):
            reason = messages.BY_DEACTIVATION if target is None else messages.deactivated_due_to(target["reason"])
            why = messages.DEACTIVATED if target is None else f"{messages.DEACTIVATED} due to {target['message']}"
            _evict(outcome, obj, reason, why, now)
        elif is_reserved and not has_owner:
            outcome.status = release(obj, now, requeue=False)
        return outcome
    if target is not None and target["status"] == "True":
        if is_reserved or not is_true(conditions, messages.EVICTED):
            outcome.deactivate = True
        else:
            _reactivate(outcome, obj, now)
        return outcome
    if not is_reserved:
        _requeue(outcome, obj, now)
    elif is_true(conditions, messages.EVICTED):
        if not has_owner:
            outcome.status = release(obj, now)
    else:
        _keep(outcome, obj, now, settings, stops())
    return outcome


def _keep(outcome: Outcome, obj: Object, now: float, settings: QueueSettings, stops: Mapping[str, str]) -> None:
    """A workload with quota: may it keep it, and is it admitted?"""
    conditions = obj["status"].get("conditions") or ()
    admitted = find(conditions, messages.ADMITTED)
    is_admitted = admitted is not None and admitted["status"] == "True"
    for kind, policy in stops.items():
        if policy == names.HOLD_AND_DRAIN or (policy == names.HOLD and not is_admitted):
            is_cluster = kind == names.CLUSTER_QUEUE.kind
            name = obj["status"]["admission"]["clusterQueue"] if is_cluster else obj["spec"].get("queueName", "")
            reason = messages.BY_CLUSTER_QUEUE if is_cluster else messages.BY_LOCAL_QUEUE
            said = messages.queue_stopped(name) if is_cluster else messages.local_queue_stopped(name)
            _evict(outcome, obj, reason, said, now)
            return
    states = {one["state"] for one in obj["status"].get("admissionChecks") or ()}
    if names.CHECK_REJECTED in states:
        rejected = [one["name"] for one in obj["status"]["admissionChecks"] if one["state"] == names.CHECK_REJECTED]
        said = f"Admission check(s): {','.join(rejected)}, were rejected"
        _deactivate(outcome, obj, messages.BY_CHECK, said, now)
        outcome.events.append(Event("Warning", messages.CHECK_REJECTED, said))
    elif names.CHECK_RETRY in states:
        _evict(outcome, obj, messages.BY_CHECK, messages.CHECK_SAID_RETRY, now)
    elif is_admitted and admitted is not None:
        _watch_time(outcome, obj, now, settings, seconds(admitted["lastTransitionTime"]))
    elif states <= {names.CHECK_READY}:
        status = Status(obj, now)
        status.set(messages.ADMITTED, True, messages.ADMITTED, messages.IS_ADMITTED)
        outcome.status = status.value


def _watch_time(outcome: Outcome, obj: Object, now: float, settings: QueueSettings, since: float) -> None:
    limit = obj["spec"].get("maximumExecutionTimeSeconds")
    if limit is not None:
        left = since + limit - (obj["status"].get("accumulatedPastExecutionTimeSeconds") or 0) - now
        if left <= 0:
            said = messages.time_exceeded(limit)
            _deactivate(outcome, obj, messages.TIME_LIMIT, said, now)
            outcome.events.append(Event("Warning", messages.TIME_LIMIT, said))
            return
        outcome.wake_after = left
    if not settings.pods_ready:
        return
    ready = find(obj["status"].get("conditions") or (), messages.PODS_READY)
    if ready is None or ready["status"] == "True":
        return  # nobody says anything about pods, or all is well
    recovers = ready["reason"] == messages.WAIT_FOR_RECOVERY
    start = max(since, seconds(ready["lastTransitionTime"])) if recovers else since
    left = start + (settings.recovery if recovers else settings.timeout) - now
    if left > 0:
        outcome.wake_after = left if outcome.wake_after is None else min(left, outcome.wake_after)
        return
    count = ((obj["status"].get("requeueState") or {}).get("count") or 0) + 1
    if settings.backoff_limit is not None and count > settings.backoff_limit:
        _deactivate(outcome, obj, messages.REQUEUE_LIMIT, messages.requeue_limit(settings.backoff_limit), now)
        return
    metadata = obj["metadata"]
    _evict(
        outcome, obj, messages.BY_PODS_READY, messages.pods_ready_timeout(metadata["namespace"], metadata["name"]), now
    )
    until = datetime.fromtimestamp(now, UTC) + timedelta(seconds=_pause(metadata["uid"], count, settings))
    if outcome.status is not None:
        outcome.status["requeueState"] = {"count": count, "requeueAt": to_rfc3339(until)}


def _pause(uid: str, count: int, settings: QueueSettings) -> float:
    """Twice as long every time, and for each a little longer than for others, so that not all come back at once."""
    drawn = int.from_bytes(blake2b(f"{uid}/{count}".encode(), digest_size=4).digest()) / 2**32
    pause = settings.backoff_base * 2.0 ** (count - 1) * (1 + settings.backoff_jitter * drawn)
    return min(pause, settings.backoff_most)


def _evict(outcome: Outcome, obj: Object, reason: str, message: str, now: float) -> None:
    outcome.status = evict(obj, reason, message, now)
    outcome.events.append(Event("Normal", messages.evicted_event(reason), message))


def _deactivate(outcome: Outcome, obj: Object, reason: str, message: str, now: float) -> None:
    status = Status(obj, now)
    status.set(messages.DEACTIVATION, True, reason, message)
    outcome.status, outcome.deactivate = status.value, True


def _reactivate(outcome: Outcome, obj: Object, now: float) -> None:
    """Somebody set it active again after it was deactivated: a fresh start."""
    status = Status(obj, now)
    status.drop(messages.DEACTIVATION)
    status.value["requeueState"] = None
    status.set(messages.REQUEUED, True, messages.REACTIVATED, messages.IS_REACTIVATED)
    outcome.status = status.value


def _requeue(outcome: Outcome, obj: Object, now: float) -> None:
    state = obj.get("status", {}).get("requeueState") or {}
    if not state.get("requeueAt"):
        return
    left = seconds(state["requeueAt"]) - now
    if left > 0:
        outcome.wake_after = left
        return
    status = Status(obj, now)
    status.value["requeueState"] = {"count": state.get("count", 0), "requeueAt": None}
    status.set(messages.REQUEUED, True, messages.BACKOFF_FINISHED, messages.BACKOFF_OVER)
    outcome.status = status.value
