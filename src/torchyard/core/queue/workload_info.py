"""One workload as the queues see it: what it asks for, whether it holds quota, and since when it waits."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import orjson

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.requirements import Known, Shape, shape_of
from torchyard.core.queue.resources import Amounts, milli

Key = tuple[str, str]  # namespace, name


@lru_cache(maxsize=4096)
def seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


class Item:
    """Read from a Workload, and read again when that changes."""

    __slots__ = (
        "_known",
        "created",
        "held",
        "is_active",
        "is_admitted",
        "is_evicted",
        "is_finished",
        "is_leaving",
        "is_ready",
        "key",
        "obj",
        "place",
        "priority",
        "queue",
        "queued_at",
        "replaces",
        "requeue_at",
        "reserved_at",
        "revision",
        "told",
        "uid",
    )

    def __init__(self, obj: Object, before: Item | None = None) -> None:
        """`before`: what was known of the same workload; what it asks for seldom changes."""
        metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        conditions = status.get("conditions") or ()
        self.obj = obj
        self.key: Key = (metadata.get("namespace", ""), metadata["name"])
        self.uid: str = metadata.get("uid", "")
        self.revision = revision_of(obj)
        self._known: Known = (
            before._known if before is not None and before._asks_like(obj) else shape_of(spec.get("podSets") or ())
        )
        self.priority: int = spec.get("priority") or 0
        self.queue: str = spec.get("queueName") or ""
        self.created = seconds(metadata.get("creationTimestamp"))
        self.is_finished = is_true(conditions, messages.FINISHED)
        self.is_leaving = bool(metadata.get("deletionTimestamp"))  # holds its quota until nothing of it runs
        self.is_active: bool = spec.get("active", True) is not False
        evicted = find(conditions, messages.EVICTED)
        self.is_evicted = self.is_leaving or (evicted is not None and evicted["status"] == "True")
        self.queued_at = self.created
        if evicted is not None and evicted["reason"] == messages.BY_PODS_READY:
            self.queued_at = seconds(evicted["lastTransitionTime"])
        reserved = find(conditions, messages.QUOTA_RESERVED)
        admission = status.get("admission")
        holds = bool(admission) and reserved is not None and reserved["status"] == "True" and not self.is_finished
        self.place: str = admission["clusterQueue"] if admission and holds else ""
        self.held: Amounts = held_by(obj) if holds else {}
        self.reserved_at = seconds(reserved["lastTransitionTime"]) if reserved is not None and holds else 0.0
        self.is_admitted = holds and is_true(conditions, messages.ADMITTED)
        self.is_ready = holds and is_true(conditions, messages.PODS_READY)
        requeue = (status.get("requeueState") or {}).get("requeueAt")
        self.requeue_at: float | None = seconds(requeue) if requeue else None
        self.told = reserved["message"] if reserved is not None and not holds else ""

        annotations = metadata.get("annotations")
        self.replaces = _key((annotations or {}).get(names.REPLACES)) if annotations else None

    def _asks_like(self, obj: Object) -> bool:
        mine, other = self.obj["metadata"], obj["metadata"]
        if mine.get("generation") and mine["generation"] == other.get("generation") and self.uid == other.get("uid"):
            return True  # a new spec would be a new generation
        return bool((self.obj.get("spec") or {}).get("podSets") == (obj.get("spec") or {}).get("podSets"))

    def asks_as(self, other: Item) -> bool:
        """Whether it is another state of the same workload that waits at the same place for the same."""
        return self.order == other.order and self.lane == other.lane

    def holds_alike(self, other: Item) -> bool:
        """Whether both hold the same quota, and are preempted or kept alike."""
        mine = (self.place, self.queue, self.priority, self.queued_at, self.is_evicted)
        theirs = (other.place, other.queue, other.priority, other.queued_at, other.is_evicted)
        return mine == theirs and self.held == other.held

    def share(self) -> None:
        """Have one copy of what many workloads have: pod sets are most of what one is that waits or runs.

        Those that ended are the most in number, and stay as they are: theirs are also what they were given, and when.
        """
        spec, first = self.obj.get("spec") or {}, self._known.pod_sets
        if spec.get("podSets") is not first and spec.get("podSets") == first:
            spec["podSets"] = first
        if self.is_finished:
            status = self.obj["status"]
            status["conditions"] = [_first_like(one) for one in status["conditions"]]
            if status.get("admission"):
                status["admission"] = _first_like(status["admission"])

    @property
    def shape(self) -> Shape:
        return self._known.shape

    @property
    def lane(self) -> tuple[Shape, Key | None]:
        """Those who are admitted or refused alike."""
        return self._known.shape, self.replaces

    @property
    def order(self) -> tuple[int, float, Key]:
        """Higher priority first, then who waits longest."""
        return -self.priority, self.queued_at, self.key

    @property
    def has_lost_a_loan(self) -> bool:
        """Whether others of the cohort took back what it had borrowed, and it has not been admitted since."""
        preempted = find((self.obj.get("status") or {}).get("conditions") or (), messages.PREEMPTED)
        return preempted is not None and preempted["status"] == "True" and preempted["reason"] != messages.IN_QUEUE

    @property
    def job_uid(self) -> str:
        return str((self.obj["metadata"].get("labels") or {}).get(names.JOB_UID, ""))


def _first_like(part: Object) -> Object:
    return _same(orjson.dumps(part).decode())  # as text it takes what it needs: the bytes come with room to spare


@lru_cache(maxsize=4096)
def _same(written: str) -> Object:
    """One object for all that are written alike."""
    found: Object = orjson.loads(written)
    return found


def revision_of(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def _key(text: str | None) -> Key | None:
    namespace, _, name = (text or "").partition("/")
    return (namespace, name) if name else None


def held_by(obj: Object) -> Amounts:
    """What an admission takes, less the pods that are known to need nothing any more."""
    status = obj["status"]
    spared = {one["name"]: one["count"] for one in status.get("reclaimablePods") or ()}
    counts = {
        one.get("name") or names.MAIN: one.get("count", 1) for one in (obj.get("spec") or {}).get("podSets") or ()
    }
    total: Amounts = {}
    for one in status["admission"].get("podSetAssignments") or ():
        name = one.get("name") or names.MAIN
        count = one.get("count", counts.get(name, 0))
        left = max(0, count - spared.get(name, 0))
        for resource, flavor in (one.get("flavors") or {}).items():
            amount = milli((one.get("resourceUsage") or {}).get(resource, 0))
            if left != count:
                amount = amount * left // count
            total[flavor, resource] = total.get((flavor, resource), 0) + amount
    return total
