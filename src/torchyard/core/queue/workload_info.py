"""A Workload as the scheduler needs it: what it requires, whether it holds quota, and since when it is queued."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import orjson

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.pod_defaults import NO_DEFAULTS, PodDefaults
from torchyard.core.queue.requirements import InternedPodSets, SchedulingRequirements, intern_pod_sets
from torchyard.core.queue.resources import FlavorResourceQuantities, to_milli

Key = tuple[str, str]  # namespace, name
QueueOrder = tuple[int, float, Key]
_MANY_PREEMPTIONS = 3
EquivalenceKey = tuple[SchedulingRequirements, Key | None]


@lru_cache(maxsize=4096)
def to_timestamp(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


# Evictions after which a workload is behind those that were queued meanwhile.
_QUEUED_AGAIN = frozenset({messages.REASON_PODS_READY_TIMEOUT, messages.REASON_ADMISSION_CHECK})


class WorkloadInfo:
    """Parsed from a Workload once for each of its versions."""

    __slots__ = (
        "_defaults",
        "_interned",
        "_reclaimable",
        "admission_gates",
        "created",
        "is_active",
        "is_admitted",
        "is_deleting",
        "is_evicted",
        "is_finished",
        "is_ready",
        "key",
        "local_queue",
        "obj",
        "pending_cause",
        "pending_message",
        "preemption_rounds",
        "priority",
        "queue_name",
        "queued_at",
        "replaces",
        "requeue_at",
        "reserved_at",
        "reserved_in",
        "resource_version",
        "uid",
        "usage",
    )

    def __init__(self, obj: Object, previous: WorkloadInfo | None = None, defaults: PodDefaults = NO_DEFAULTS) -> None:
        """`previous`: the workload's last version. Its parsed pod sets are reused, since they seldom change.

        `defaults`: what is added to its pods when they are created.
        """
        metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        conditions = status.get("conditions") or ()
        self.obj = obj
        self.key: Key = (metadata.get("namespace", ""), metadata["name"])
        self.uid: str = metadata.get("uid", "")
        self.resource_version = resource_version_of(obj)
        self._defaults, self._reclaimable = defaults, reclaimable_pods(status)
        self._interned: InternedPodSets = (
            previous._interned
            if previous is not None and previous._has_same_requirements(self)
            else intern_pod_sets(spec.get("podSets") or (), defaults, self._reclaimable)
        )
        self.priority: int = spec.get("priority") or 0
        self.queue_name: str = spec.get("queueName") or ""
        self.local_queue: Key = (self.key[0], self.queue_name)
        self.created = to_timestamp(metadata.get("creationTimestamp"))
        self.is_finished = is_true(conditions, messages.FINISHED)
        self.is_deleting = bool(metadata.get("deletionTimestamp"))  # holds its quota until all of its pods are gone
        self.is_active: bool = spec.get("active", True) is not False
        evicted = find(conditions, messages.EVICTED)
        self.is_evicted = self.is_deleting or (evicted is not None and evicted["status"] == "True")
        self.queued_at = self.created
        if evicted is not None and evicted["reason"] in _QUEUED_AGAIN:
            self.queued_at = to_timestamp(evicted["lastTransitionTime"])
        reserved = find(conditions, messages.QUOTA_RESERVED)
        admission = status.get("admission")
        has_quota = bool(admission) and reserved is not None and reserved["status"] == "True" and not self.is_finished
        self.reserved_in: str = admission["clusterQueue"] if admission and has_quota else ""  # a ClusterQueue
        self.usage: FlavorResourceQuantities = admission_usage(obj) if has_quota else {}
        self.reserved_at = to_timestamp(reserved["lastTransitionTime"]) if reserved is not None and has_quota else 0.0
        self.is_admitted = has_quota and is_true(conditions, messages.ADMITTED)
        self.is_ready = has_quota and is_true(conditions, messages.PODS_READY)
        requeue_at = (status.get("requeueState") or {}).get("requeueAt")
        self.requeue_at: float | None = to_timestamp(requeue_at) if requeue_at else None
        self.pending_message: str = reserved["message"] if reserved is not None and not has_quota else ""

        # Why it is pending, more exactly than the condition's reason says. Only the scheduler knows.
        self.pending_cause: str = ""
        if previous is not None and previous.pending_message == self.pending_message:
            self.pending_cause = previous.pending_cause

        # How often it preempted others. Only the scheduler knows.
        self.preemption_rounds: int = 0
        if previous is not None and previous.uid == self.uid:
            self.preemption_rounds = previous.preemption_rounds

        annotations = metadata.get("annotations")
        self.replaces = _parse_key(annotations.get(names.REPLACES)) if annotations else None
        # Controllers that must remove their name before it is scheduled, separated by commas.
        self.admission_gates: str = annotations.get(names.ADMISSION_GATED_BY, "") if annotations else ""

    def _has_same_requirements(self, other: WorkloadInfo) -> bool:
        if self._defaults is not other._defaults or self._reclaimable != other._reclaimable:
            return False
        generation = self.obj["metadata"].get("generation")
        if generation and generation == other.obj["metadata"].get("generation") and self.uid == other.uid:
            return True  # a new spec would have a new generation
        return bool((self.obj.get("spec") or {}).get("podSets") == (other.obj.get("spec") or {}).get("podSets"))

    def is_queued_like(self, other: WorkloadInfo) -> bool:
        """Whether `other` is a version of the same workload with the same requirements and position."""
        return self.order == other.order and self.equivalence_key == other.equivalence_key

    def has_same_reservation(self, other: WorkloadInfo) -> bool:
        """Whether both versions hold the same quota and are equally eligible for preemption."""
        mine = (self.reserved_in, self.queue_name, self.priority, self.queued_at, self.is_evicted)
        theirs = (other.reserved_in, other.queue_name, other.priority, other.queued_at, other.is_evicted)
        return mine == theirs and self.usage == other.usage

    def share_equal_parts(self) -> None:
        """Replace parts of the object by equal ones that other workloads have, to save memory.

        Pod sets are most of a pending or running workload. Finished ones are the most in number and stay as they are,
        so their conditions and admissions are shared as well.
        """
        spec, first = self.obj.get("spec") or {}, self._interned.pod_sets
        if spec.get("podSets") is not first and spec.get("podSets") == first:
            spec["podSets"] = first
        if self.is_finished:
            status = self.obj["status"]
            status["conditions"] = [_intern_object(condition) for condition in status["conditions"]]
            if status.get("admission"):
                status["admission"] = _intern_object(status["admission"])

    @property
    def requirements(self) -> SchedulingRequirements:
        return self._interned.requirements

    @property
    def equivalence_key(self) -> EquivalenceKey:
        """Pending workloads with the same key in one ClusterQueue are admitted or refused alike."""
        return self._interned.requirements, self.replaces

    @property
    def order(self) -> QueueOrder:
        """Higher priority first, then the longest queued."""
        return -self.priority, self.queued_at, self.key

    @property
    def lost_borrowed_quota(self) -> bool:
        """Whether its cohort reclaimed the quota it had borrowed, and it has not been admitted since."""
        preempted = find((self.obj.get("status") or {}).get("conditions") or (), messages.PREEMPTED)
        return (
            preempted is not None
            and preempted["status"] == "True"
            and preempted["reason"] != messages.REASON_IN_CLUSTER_QUEUE
        )

    @property
    def has_preempted_often(self) -> bool:
        """Whether it may be one of several workloads that preempt each other in turn."""
        return self.preemption_rounds > _MANY_PREEMPTIONS

    @property
    def job_uid(self) -> str:
        return str((self.obj["metadata"].get("labels") or {}).get(names.JOB_UID, ""))


def _intern_object(part: Object) -> Object:
    return _parse_interned(orjson.dumps(part).decode())  # str, not bytes: orjson over-allocates its bytes


@lru_cache(maxsize=4096)
def _parse_interned(encoded: str) -> Object:
    """One object for all that have the same encoding."""
    obj: Object = orjson.loads(encoded)
    return obj


def resource_version_of(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def _parse_key(text: str | None) -> Key | None:
    namespace, _, name = (text or "").partition("/")
    return (namespace, name) if name else None


_NONE_RECLAIMABLE: dict[str, int] = {}


def reclaimable_pods(status: Object) -> dict[str, int]:
    """How many pods of each pod set are not needed any more."""
    entries = status.get("reclaimablePods")
    return {entry["name"]: entry["count"] for entry in entries} if entries else _NONE_RECLAIMABLE


def admission_usage(obj: Object) -> FlavorResourceQuantities:
    """The quota an admission uses, without that of pods that became reclaimable or were removed after it."""
    status = obj["status"]
    reclaimable = reclaimable_pods(status)
    counts = {
        pod_set.get("name") or names.MAIN: pod_set.get("count", 1)
        for pod_set in (obj.get("spec") or {}).get("podSets") or ()
    }
    usage: FlavorResourceQuantities = {}
    for assignment in status["admission"].get("podSetAssignments") or ():
        name = assignment.get("name") or names.MAIN
        count = assignment.get("count", counts.get(name, 0))
        needed = min(count, max(0, counts.get(name, count) - reclaimable.get(name, 0)))
        for resource, flavor in (assignment.get("flavors") or {}).items():
            amount = to_milli((assignment.get("resourceUsage") or {}).get(resource, 0))
            if needed < count:
                amount = amount * needed // count
            usage[flavor, resource] = usage.get((flavor, resource), 0) + amount
    return usage
