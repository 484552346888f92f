"""The life of a workload: quota reserved, admitted, evicted, quota released, requeued, finished. Status in, status out.

`evaluate` is the entry point of the workload controller: what time, admission checks and stopped queues require. The
functions above it compute single status changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b

from torchyard.api.conditions import find, is_true, with_condition
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.api.times import shift, to_rfc3339
from torchyard.core.events import Event
from torchyard.core.queue.flavor_assigner import Assignment
from torchyard.core.queue.resources import format_quantity
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.specs import ClusterQueueSpec
from torchyard.core.queue.workload_info import to_timestamp


class WorkloadStatusBuilder:
    """A copy of a workload's status that is being changed."""

    def __init__(self, obj: Object, now: float) -> None:
        self.status: Object = dict(obj.get("status") or {})
        self._now = to_rfc3339(datetime.fromtimestamp(now, UTC))
        self._generation = obj["metadata"].get("generation")

    @property
    def conditions(self) -> list[Object]:
        return list(self.status.get("conditions") or ())

    def set_condition(self, type: str, status: bool, reason: str, message: str) -> None:
        self.status["conditions"] = with_condition(
            self.conditions,
            type,
            status,
            reason=reason,
            message=message,
            now=self._now,
            generation=self._generation,
        )

    def remove_condition(self, type: str) -> None:
        self.status["conditions"] = [condition for condition in self.conditions if condition["type"] != type]

    def reset_checks(self) -> None:
        checks = self.status.get("admissionChecks") or ()
        if checks:
            state = {"state": names.CHECK_PENDING, "message": messages.CHECK_RESET, "lastTransitionTime": self._now}
            self.status["admissionChecks"] = [{"name": check["name"], **state} for check in checks]

    def set_checks(self, required: Iterable[str]) -> None:
        """Keep the states of the checks that are required, and drop the others; new ones are pending."""
        known = {check["name"]: check for check in self.status.get("admissionChecks") or ()}
        state = {"state": names.CHECK_PENDING, "message": "", "lastTransitionTime": self._now}
        checks = [known.get(name) or {"name": name, **state} for name in required]
        self.status["admissionChecks"] = checks or None


def reserve_quota(obj: Object, spec: ClusterQueueSpec, assignment: Assignment, now: float) -> Object:
    """The status of a workload that gets quota. It is admitted at once if no admission check applies."""
    builder = WorkloadStatusBuilder(obj, now)
    pod_set_assignments = [
        {
            "name": pod_set.name,
            "count": pod_set.count,
            **(
                {
                    "flavors": pod_set.flavors,
                    "resourceUsage": {
                        resource: format_quantity(resource, pod_set.usage[resource]) for resource in pod_set.flavors
                    },
                }
                if pod_set.flavors
                else {}
            ),
        }
        for pod_set in assignment.pod_sets
    ]
    builder.status["admission"] = {"clusterQueue": spec.name, "podSetAssignments": pod_set_assignments}
    builder.status.pop("resourceRequests", None)
    builder.set_condition(messages.QUOTA_RESERVED, True, messages.QUOTA_RESERVED, messages.quota_reserved(spec.name))
    for type in (messages.EVICTED, messages.PREEMPTED):
        condition = find(builder.conditions, type)
        if condition is not None and condition["status"] == "True":
            builder.set_condition(type, False, messages.QUOTA_RESERVED, messages.previously(condition["message"]))
    requeued = find(builder.conditions, messages.REQUEUED)
    restarted = messages.QUEUE_RESTARTED.get(requeued["reason"]) if requeued is not None else None
    if restarted is not None:
        builder.set_condition(messages.REQUEUED, True, *restarted)
    checks = spec.required_checks({flavor for flavor, _ in assignment.usage})
    if checks:
        builder.set_checks(checks)
    if all(check["state"] == names.CHECK_READY for check in builder.status.get("admissionChecks") or ()):
        builder.set_condition(messages.ADMITTED, True, messages.ADMITTED, messages.WORKLOAD_IS_ADMITTED)
    return builder.status


def set_pending(obj: Object, reason: str, message: str, now: float) -> Object:
    builder = WorkloadStatusBuilder(obj, now)
    builder.set_condition(messages.QUOTA_RESERVED, False, reason, message)
    return builder.status


def evict(obj: Object, reason: str, message: str, now: float, *, preempted: str = "", cause: str = "") -> Object:
    """The workload must stop. It holds its quota until it has stopped.

    `preempted`: the reason of its preemption. `cause`: what is counted as underlying cause, if the reason has none.
    """
    builder = WorkloadStatusBuilder(obj, now)
    builder.set_condition(messages.EVICTED, True, reason, message)
    if preempted:
        builder.set_condition(messages.PREEMPTED, True, preempted, message)
    counts = {(entry["reason"], entry["underlyingCause"]): entry["count"] for entry in _evictions(obj)}
    base, _, reason_cause = reason.partition("DueTo")
    counted = base, reason_cause or cause
    counts[counted] = counts.get(counted, 0) + 1
    builder.status["schedulingStats"] = {
        "evictions": [
            {"reason": reason, "underlyingCause": cause, "count": count} for (reason, cause), count in counts.items()
        ]
    }
    return builder.status


def _evictions(obj: Object) -> list[Object]:
    evictions: list[Object] = ((obj.get("status") or {}).get("schedulingStats") or {}).get("evictions") or []
    return evictions


def release_quota(obj: Object, now: float, *, requeue: bool = True) -> Object:
    """The status of a workload whose pods have all stopped."""
    builder = WorkloadStatusBuilder(obj, now)
    evicted = find(builder.conditions, messages.EVICTED)
    message = evicted["message"] if evicted is not None else messages.WORKLOAD_HAS_NO_RESERVATION
    admitted = find(builder.conditions, messages.ADMITTED)
    if admitted is not None and admitted["status"] == "True":
        run_time = int(max(0.0, now - to_timestamp(admitted["lastTransitionTime"])))
        past = builder.status.get("accumulatedPastExecutionTimeSeconds") or 0
        builder.status["accumulatedPastExecutionTimeSeconds"] = past + run_time
        builder.set_condition(
            messages.ADMITTED, False, messages.REASON_NO_RESERVATION, messages.WORKLOAD_HAS_NO_RESERVATION
        )
    builder.set_condition(messages.QUOTA_RESERVED, False, messages.REASON_PENDING, message)
    builder.remove_condition(messages.PODS_READY)
    builder.status["admission"] = None
    builder.status["reclaimablePods"] = None
    builder.reset_checks()
    if requeue and evicted is not None:
        is_requeued = evicted["reason"] == messages.REASON_PREEMPTED
        builder.set_condition(messages.REQUEUED, is_requeued, evicted["reason"], evicted["message"])
    return builder.status


def finish(obj: Object, reason: str, message: str, now: float) -> Object:
    builder = WorkloadStatusBuilder(obj, now)
    builder.set_condition(messages.FINISHED, True, reason, message)
    return builder.status


def set_pods_ready(obj: Object, is_ready: bool, now: float) -> Object | None:
    """The status that says whether all pods are ready; None if the current one says so already."""
    condition = find((obj.get("status") or {}).get("conditions") or (), messages.PODS_READY)
    if condition is not None and (condition["status"] == "True") == is_ready:
        return None
    was_ready = condition is not None and (
        condition["status"] == "True" or condition["reason"] == messages.REASON_WAIT_FOR_RECOVERY
    )
    if is_ready:
        reason = messages.REASON_RECOVERED if was_ready else messages.REASON_STARTED
        message = messages.ALL_PODS_READY
    elif was_ready:
        reason, message = messages.REASON_WAIT_FOR_RECOVERY, messages.WAITING_FOR_POD_RECOVERY
    else:
        reason, message = messages.REASON_WAIT_FOR_START, messages.PODS_NOT_READY
    builder = WorkloadStatusBuilder(obj, now)
    builder.set_condition(messages.PODS_READY, is_ready, reason, message)
    return builder.status


def set_waiting_for_replacement(obj: Object, is_waiting: bool, now: float) -> Object | None:
    """The status that says whether failed pods need to be replaced; None if the current one says so already."""
    type, conditions = messages.WAITING_FOR_REPLACEMENT_PODS, (obj.get("status") or {}).get("conditions") or ()
    condition = find(conditions, type)
    if (condition is not None and condition["status"] == "True") == is_waiting:
        return None
    builder = WorkloadStatusBuilder(obj, now)
    if is_waiting:
        builder.set_condition(type, True, messages.REASON_PODS_FAILED, messages.PODS_NEED_REPLACEMENT)
    else:
        builder.set_condition(type, False, messages.PODS_READY, messages.NO_PODS_NEED_REPLACEMENT)
    return builder.status


def set_reclaimable_pods(obj: Object, counts: Mapping[str, int]) -> Object | None:
    """The status with the pods that are not needed any more; None if it has them.

    A pod set never needs quota again that it gave back, even if one of its pods is restarted.
    """
    status = obj.get("status") or {}
    reported = {entry["name"]: entry["count"] for entry in status.get("reclaimablePods") or ()}
    merged = reported | {name: max(count, reported.get(name, 0)) for name, count in counts.items()}
    if merged == reported:
        return None
    return {**status, "reclaimablePods": [{"name": name, "count": count} for name, count in merged.items()]}


@dataclass
class WorkloadOutcome:
    """What to write and to report about a workload, and when to evaluate it again."""

    status: Object | None = None
    deactivate: bool = False
    events: list[Event] = field(default_factory=list)
    evaluate_after: float | None = None  # seconds

    def evict(self, obj: Object, reason: str, message: str, now: float, *, cause: str = "") -> None:
        self.status = evict(obj, reason, message, now, cause=cause)
        self.events.append(Event("Normal", messages.evicted_event(reason), message))

    def deactivate_because(self, obj: Object, reason: str, message: str, now: float) -> None:
        builder = WorkloadStatusBuilder(obj, now)
        builder.set_condition(messages.DEACTIVATION_TARGET, True, reason, message)
        self.status, self.deactivate = builder.status, True


def evaluate(
    obj: Object,
    now: float,
    settings: QueueSettings,
    *,
    stops: Callable[[], Mapping[str, str]],
    has_owner: bool,
    cluster_queue: ClusterQueueSpec | None = None,
) -> WorkloadOutcome:
    """What time, admission checks and stopped queues require of a workload.

    `stops` returns the stop policies in force by kind of queue. It is called only for a workload that holds quota.
    `cluster_queue`: that of its quota or its LocalQueue, whose admission checks it needs.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = status.get("conditions") or ()
    outcome = WorkloadOutcome()
    if is_true(conditions, messages.FINISHED) or obj["metadata"].get("deletionTimestamp"):
        return outcome
    target = find(conditions, messages.DEACTIVATION_TARGET)
    has_quota = is_true(conditions, messages.QUOTA_RESERVED) and bool(status.get("admission"))
    is_evicted = is_true(conditions, messages.EVICTED)
    if cluster_queue is not None and _sync_checks(outcome, obj, cluster_queue, now):
        return outcome
    if spec.get("active", True) is False:
        if not is_evicted:
            _evict_deactivated(outcome, obj, target, now)
        elif has_quota and not has_owner:
            outcome.status = release_quota(obj, now, requeue=False)
    elif target is not None and target["status"] == "True" and (has_quota or not is_evicted):
        outcome.deactivate = True
    elif not has_quota:
        _requeue(outcome, obj, now, is_reactivated=target is not None)
    elif is_evicted:
        if not has_owner:
            outcome.status = release_quota(obj, now, requeue=False)
    else:
        _evaluate_reserving(outcome, obj, now, settings, stops())
    return outcome


def _sync_checks(outcome: WorkloadOutcome, obj: Object, spec: ClusterQueueSpec, now: float) -> bool:
    """Whether the states of a workload's checks have to follow the checks that its ClusterQueue requires."""
    status = obj.get("status") or {}
    current = status.get("admissionChecks") or ()
    if not spec.checks and not current:
        return False
    assignments = (status.get("admission") or {}).get("podSetAssignments")
    flavors = None
    if assignments is not None:
        flavors = {flavor for assignment in assignments for flavor in (assignment.get("flavors") or {}).values()}
    required = spec.required_checks(flavors)
    if {check["name"] for check in current} == set(required):
        return False
    builder = WorkloadStatusBuilder(obj, now)
    builder.set_checks(required)
    outcome.status = builder.status
    return True


def _evict_deactivated(outcome: WorkloadOutcome, obj: Object, target: Object | None, now: float) -> None:
    if target is None:
        outcome.evict(obj, messages.REASON_DEACTIVATED, messages.WORKLOAD_IS_DEACTIVATED, now)
    else:
        reason = messages.deactivated_due_to(target["reason"])
        outcome.evict(obj, reason, messages.deactivated_because(target["message"]), now)
    if outcome.status is not None:  # when it is set active again, it starts over
        conditions = outcome.status["conditions"]
        outcome.status["conditions"] = [entry for entry in conditions if entry["type"] != messages.DEACTIVATION_TARGET]
        outcome.status["requeueState"] = None


def _evaluate_reserving(
    outcome: WorkloadOutcome, obj: Object, now: float, settings: QueueSettings, stops: Mapping[str, str]
) -> None:
    """A workload with quota: whether it keeps it, and whether it is admitted."""
    admitted = find(obj["status"].get("conditions") or (), messages.ADMITTED)
    is_admitted = admitted is not None and admitted["status"] == "True"
    for kind, policy in stops.items():
        if policy == names.HOLD_AND_DRAIN or (policy == names.HOLD and not is_admitted):
            _evict_from_stopped_queue(outcome, obj, kind, now)
            return
    checks = obj["status"].get("admissionChecks") or ()
    states = {check["state"] for check in checks}
    if names.CHECK_REJECTED in states:
        message = _checks_in_state(names.CHECK_REJECTED, checks)
        outcome.deactivate_because(obj, messages.REASON_ADMISSION_CHECK, message, now)
        outcome.events.append(Event("Warning", messages.EVENT_CHECK_REJECTED, message))
    elif names.CHECK_RETRY in states:
        message = messages.evicted_due_to(_checks_in_state(names.CHECK_RETRY, checks))
        outcome.evict(obj, messages.REASON_ADMISSION_CHECK, message, now)
        retry_at = _retry_at(checks)
        if retry_at > now:
            _requeue_at(outcome, retry_at, (obj["status"].get("requeueState") or {}).get("count") or 0)
    elif is_admitted and admitted is not None:
        _check_time_limits(outcome, obj, now, settings, to_timestamp(admitted["lastTransitionTime"]))
    elif states <= {names.CHECK_READY}:
        builder = WorkloadStatusBuilder(obj, now)
        builder.set_condition(messages.ADMITTED, True, messages.ADMITTED, messages.WORKLOAD_IS_ADMITTED)
        outcome.status = builder.status


def _retry_at(checks: Iterable[Object]) -> float:
    """When all checks that ask for a retry allow it."""
    return max(
        to_timestamp(check.get("lastTransitionTime")) + (check.get("requeueAfterSeconds") or 0)
        for check in checks
        if check["state"] == names.CHECK_RETRY
    )


def _checks_in_state(state: str, checks: Iterable[Object]) -> str:
    return messages.checks_in_state(
        state, ((check["name"], check.get("message") or "") for check in checks if check["state"] == state)
    )


def _evict_from_stopped_queue(outcome: WorkloadOutcome, obj: Object, kind: str, now: float) -> None:
    if kind == names.CLUSTER_QUEUE.kind:
        outcome.evict(obj, messages.REASON_CLUSTER_QUEUE_STOPPED, messages.CLUSTER_QUEUE_STOPPED, now)
    else:
        outcome.evict(obj, messages.REASON_LOCAL_QUEUE_STOPPED, messages.LOCAL_QUEUE_STOPPED, now)


def _check_time_limits(
    outcome: WorkloadOutcome, obj: Object, now: float, settings: QueueSettings, admitted_at: float
) -> None:
    limit = obj["spec"].get("maximumExecutionTimeSeconds")
    if limit is not None:
        left = admitted_at + limit - (obj["status"].get("accumulatedPastExecutionTimeSeconds") or 0) - now
        if left <= 0:
            reason = messages.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED
            outcome.deactivate_because(obj, reason, messages.EXCEEDS_EXECUTION_TIME, now)
            outcome.events.append(Event("Warning", reason, messages.execution_time_exceeded(limit)))
            return
        outcome.evaluate_after = left
    if settings.pods_ready:
        _check_pods_ready(outcome, obj, now, settings, admitted_at)


def _check_pods_ready(
    outcome: WorkloadOutcome, obj: Object, now: float, settings: QueueSettings, admitted_at: float
) -> None:
    ready = find(obj["status"].get("conditions") or (), messages.PODS_READY)
    if ready is not None and ready["status"] == "True":
        return
    if ready is not None and ready["reason"] == messages.REASON_WAIT_FOR_RECOVERY:
        cause = messages.REASON_WAIT_FOR_RECOVERY
        deadline = max(admitted_at, to_timestamp(ready["lastTransitionTime"])) + settings.recovery_timeout
    else:  # as in Kueue, also if no controller reports about its pods
        cause = messages.REASON_WAIT_FOR_START
        deadline = admitted_at + settings.timeout
    left = deadline - now
    if left > 0:
        outcome.evaluate_after = left if outcome.evaluate_after is None else min(left, outcome.evaluate_after)
        return
    count = ((obj["status"].get("requeueState") or {}).get("count") or 0) + 1
    if settings.backoff_limit is not None and count > settings.backoff_limit:
        reason = messages.REASON_REQUEUING_LIMIT_EXCEEDED
        outcome.deactivate_because(obj, reason, messages.EXCEEDS_REQUEUING_LIMIT, now)
        return
    metadata = obj["metadata"]
    message = messages.pods_ready_timeout(metadata["namespace"], metadata["name"])
    outcome.evict(obj, messages.REASON_PODS_READY_TIMEOUT, message, now, cause=cause)
    _requeue_at(outcome, now + _backoff(metadata["uid"], count, settings), count)


def _requeue_at(outcome: WorkloadOutcome, timestamp: float, count: int) -> None:
    """Do not try an evicted workload again before that. `count`: how often its pods were not ready in time."""
    if outcome.status is not None:
        requeue_at = to_rfc3339(shift(datetime.fromtimestamp(0, UTC), timestamp))
        outcome.status["requeueState"] = {"count": count, "requeueAt": requeue_at}


def _backoff(uid: str, count: int, settings: QueueSettings) -> float:
    """Doubles each time, with a jitter that differs by workload so that not all are requeued at once."""
    fraction = int.from_bytes(blake2b(f"{uid}/{count}".encode(), digest_size=4).digest()) / 2**32
    backoff = settings.backoff_base * 2.0 ** min(count - 1, 62) * (1 + settings.backoff_jitter * fraction)
    return min(backoff, settings.backoff_max)


def _requeue(outcome: WorkloadOutcome, obj: Object, now: float, *, is_reactivated: bool) -> None:
    """A workload without quota may be tried again: its back-off is over, or a user set it active again.

    As in Kueue, the condition says so only if the controller of its job has set it before.
    """
    status = obj.get("status") or {}
    requeued, state = find(status.get("conditions") or (), messages.REQUEUED), status.get("requeueState") or {}
    is_waiting = requeued is not None and requeued["status"] == "False"
    if requeued is not None and is_waiting and requeued["reason"].startswith(messages.REASON_DEACTIVATED):
        is_reactivated = True
    builder = WorkloadStatusBuilder(obj, now)
    if is_reactivated:
        builder.remove_condition(messages.DEACTIVATION_TARGET)
        builder.status["requeueState"] = None
        builder.set_condition(messages.REQUEUED, True, messages.REASON_REACTIVATED, messages.WORKLOAD_WAS_REACTIVATED)
        outcome.status = builder.status
        return
    if not state.get("requeueAt"):
        return
    left = to_timestamp(state["requeueAt"]) - now
    if left > 0:
        outcome.evaluate_after = left
        return
    builder.status["requeueState"] = {"count": state.get("count", 0), "requeueAt": None}
    if is_waiting:
        builder.set_condition(messages.REQUEUED, True, messages.REASON_BACKOFF_FINISHED, messages.BACKOFF_WAS_FINISHED)
    outcome.status = builder.status
