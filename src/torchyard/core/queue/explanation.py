"""Why a pending workload waits: its position, what is missing, who uses that, and whether it can fit at all.

Computed from the objects of the API alone, so that it is the same on a plane and on a cluster with Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from torchyard.api.conditions import find
from torchyard.api.objects import Object
from torchyard.api.queue import advice_messages, messages, names, queue_messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.api.times import to_rfc3339
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.eligibility import NamespaceLabels, ineligible_advice, ineligible_reason
from torchyard.core.queue.flavor_assigner import Assignment, FlavorAssigner, FlavorAssignmentMode, InsufficientQuota
from torchyard.core.queue.hierarchy import QuotaHierarchy
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.quota_objects import QuotaObjects
from torchyard.core.queue.requirements import SchedulingRequirements
from torchyard.core.queue.resources import FlavorResource, format_quantity
from torchyard.core.queue.visibility import StartEstimate, StartEstimator, WorkloadPosition
from torchyard.core.queue.workload_info import Key


@dataclass(frozen=True)
class MissingQuota:
    """One flavor and resource. `missing` is what must become available, or what no quota can provide."""

    flavor: str
    resource: str
    requested: int
    missing: int
    is_permanent: bool
    used_by: tuple[tuple[str, int], ...]  # ClusterQueues that use it, with how much; the largest first

    def __str__(self) -> str:
        requested, missing = (format_quantity(self.resource, amount) for amount in (self.requested, self.missing))
        if self.is_permanent:
            return advice_messages.quota_never_suffices(self.resource, self.flavor, requested, missing)
        users = [(name, format_quantity(self.resource, amount)) for name, amount in self.used_by]
        return advice_messages.quota_missing(self.resource, self.flavor, requested, missing, users)


class _Shortage(NamedTuple):
    """What a ClusterQueue lacks for all workloads with the same requirements."""

    fits: bool
    can_fit: bool
    missing: tuple[MissingQuota, ...]
    mismatches: tuple[str, ...]
    keys: frozenset[FlavorResource]  # of these, more must become unused


@dataclass(frozen=True)
class PendingSummary:
    blocked: str  # why it is not scheduled, however much quota is unused; empty if it is
    fits: bool  # there is enough unused quota
    can_fit: bool  # with enough unused quota
    missing: tuple[MissingQuota, ...]
    mismatches: tuple[str, ...]  # flavors that it cannot use, and resources that no flavor has

    def __str__(self) -> str:
        """In one line, without the names of other workloads."""
        if self.fits:
            return self.blocked or advice_messages.WAITS_FOR_ITS_TURN
        parts = [self.blocked] if self.blocked else []
        if not self.can_fit:
            parts.append(advice_messages.NEVER_FITS)
        return "; ".join([*parts, *map(str, self.missing), *self.mismatches])


@dataclass(frozen=True)
class PendingExplanation(PendingSummary):
    cluster_queue: str
    position: int
    holders: tuple[str, ...]  # the workloads with most of what is missing
    estimate: StartEstimate | None

    @property
    def summary(self) -> str:
        return str(self)

    @property
    def lines(self) -> list[str]:
        lines = [advice_messages.position_in_queue(self.position, self.cluster_queue), self.summary]
        if self.holders:
            lines.append(advice_messages.quota_held_by(self.holders))
        if self.estimate is not None:
            lines.append(advice_messages.start_estimate(self.estimate.seconds, self.estimate.deviation))
        return lines


_MAX_HOLDERS = 5


class PendingExplainer:
    """Explains any number of workloads. What several of them have in common is computed once."""

    def __init__(
        self,
        positions: Iterable[WorkloadPosition],
        *,
        flavors: Iterable[Object],
        cluster_queues: Iterable[Object],
        cohorts: Iterable[Object],
        local_queues: Iterable[Object],
        checks: Iterable[Object] | None = None,
        labels_of: NamespaceLabels | None = None,
    ) -> None:
        """`positions`: of all workloads.

        Without `checks`, the statuses of ClusterQueues say whether these are active. Without the labels of namespaces,
        the statuses of workloads say whether their ClusterQueue selects them.
        """
        positions = list(positions)
        cluster_queues = list(cluster_queues)
        self._estimator = StartEstimator(positions)
        self._labels_of = labels_of
        self._local_queues: dict[Key, Object] = {
            (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj.get("spec") or {} for obj in local_queues
        }
        objects = QuotaObjects()
        for put, items in (
            (objects.put_flavor, flavors),
            (objects.put_cluster_queue, cluster_queues),
            (objects.put_cohort, cohorts),
            (objects.put_check, checks or ()),
        ):
            for obj in items:
                put(obj)
        self._unused: QuotaHierarchy = objects.build()  # as if nothing ran
        hierarchy = objects.build()
        self._cluster_queues, self._members = hierarchy.cluster_queues, hierarchy.members
        if checks is None:
            for obj in cluster_queues:
                self._cluster_queues[obj["metadata"]["name"]].inactive = _inactive_by_status(obj)
        for workload in positions:
            cq = self._cluster_queues.get(workload.info.reserved_in)
            if cq is not None:
                cq.reserving[workload.info.key] = workload.info
                cq.node.add_usage(workload.info.usage)
        self._shortages: dict[tuple[str, SchedulingRequirements], _Shortage] = {}
        self._users: dict[tuple[QuotaNode, FlavorResource], tuple[tuple[str, int], ...]] = {}

    def summarize(self, workload: WorkloadPosition) -> PendingSummary | None:
        """Without what is expensive to find out. None if it is not pending, or its queue does not exist."""
        cq = self._cluster_queues.get(workload.cluster_queue)
        if cq is None or workload.position is None:
            return None
        fits, can_fit, missing, mismatches, _ = self._shortage(cq, workload.info.requirements)
        return PendingSummary(self._blocked(workload), fits, can_fit, missing, mismatches)

    def explain(self, workload: WorkloadPosition, now: float) -> PendingExplanation | None:
        """None if it is not pending, or its queue does not exist."""
        summary, cq = self.summarize(workload), self._cluster_queues.get(workload.cluster_queue)
        if summary is None or cq is None or workload.position is None:
            return None
        shortage = self._shortage(cq, workload.info.requirements)
        return PendingExplanation(
            **vars(summary),
            cluster_queue=cq.name,
            position=workload.position,
            holders=_holders(cq.node, shortage.keys, self._members_of(cq)),
            estimate=None if summary.blocked or not summary.can_fit else self._estimator.estimate(workload, now),
        )

    def _blocked(self, workload: WorkloadPosition) -> str:
        info = workload.info
        if info.requirements.invalid:
            return info.requirements.invalid
        if info.requeue_at is not None:
            requeue_at = datetime.fromtimestamp(info.requeue_at, UTC)
            return advice_messages.waits_to_be_requeued(to_rfc3339(requeue_at))
        reason = ineligible_reason(info, self._local_queues, self._cluster_queues, self._labels_of)
        if reason is None:
            is_mismatch = self._labels_of is None and workload.message.startswith(messages.NAMESPACE_MISMATCH)
            return workload.message if is_mismatch else ""
        if reason.reason == messages.REASON_ADMISSION_GATED:
            return reason.message
        return reason.message + ineligible_advice(info, self._local_queues, self._cluster_queues)

    def _shortage(self, cq: ClusterQueue, requirements: SchedulingRequirements) -> _Shortage:
        key = cq.name, requirements
        if key not in self._shortages:
            self._shortages[key] = self._find_shortage(cq, requirements)
        return self._shortages[key]

    def _find_shortage(self, cq: ClusterQueue, requirements: SchedulingRequirements) -> _Shortage:
        assigner = cq.assigner_for(requirements)
        assignment = _assign(assigner, cq.node)
        if assignment.mode is FlavorAssignmentMode.FIT:
            return _Shortage(True, True, (), (), frozenset())
        unused = _assign(assigner, self._unused.cluster_queues[cq.name].node)
        # What an earlier pod set gets depends on what others use, so a later one may fit although it does not alone.
        can_fit = assignment.mode is FlavorAssignmentMode.PREEMPT or unused.mode is FlavorAssignmentMode.FIT
        shown = assignment if can_fit else unused  # it may be another pod set that never fits
        reasons = [reason for pod_set in shown.pod_sets for reason in pod_set.reasons]
        quotas = [reason for reason in reasons if isinstance(reason, InsufficientQuota)]
        return _Shortage(
            fits=False,
            can_fit=can_fit,
            missing=tuple(self._missing(reason, cq) for reason in quotas),
            mismatches=tuple(dict.fromkeys(reason for reason in reasons if isinstance(reason, str))),
            keys=frozenset(reason.key for reason in quotas if can_fit and not reason.is_permanent),
        )

    def _missing(self, reason: InsufficientQuota, cq: ClusterQueue) -> MissingQuota:
        requested = reason.before + reason.requested
        users = self._used_by(cq, reason.key)
        return MissingQuota(*reason.key, requested, requested - reason.limit, reason.is_permanent, users)

    def _used_by(self, cq: ClusterQueue, key: FlavorResource) -> tuple[tuple[str, int], ...]:
        root = cq.node.root
        if (root, key) not in self._users:
            usage = ((member.name, member.node.usage.get(key, 0)) for member in self._members_of(cq))
            used_by = sorted(((name, amount) for name, amount in usage if amount), key=lambda user: (-user[1], user[0]))
            self._users[root, key] = tuple(used_by)
        return self._users[root, key]

    def _members_of(self, cq: ClusterQueue) -> list[ClusterQueue]:
        return self._members.get(cq.node.root, [cq])


def _assign(assigner: FlavorAssigner, node: QuotaNode) -> Assignment:
    """Of the smallest number of pods that is acceptable, if that fits and all do not."""
    assignment = assigner.assign(node)
    if assignment.mode is FlavorAssignmentMode.FIT:
        return assignment
    smallest = assigner.assign_min_count(node)
    return smallest if smallest is not None and smallest.mode > assignment.mode else assignment


def _inactive_by_status(obj: Object) -> ReasonMessage | None:
    """Why a ClusterQueue cannot admit."""
    if (obj.get("spec") or {}).get("stopPolicy", names.NO_STOP) != names.NO_STOP:
        return ReasonMessage(
            queue_messages.REASON_STOPPED, queue_messages.cannot_admit(queue_messages.CLUSTER_QUEUE_IS_STOPPED)
        )
    active = find((obj.get("status") or {}).get("conditions") or (), queue_messages.ACTIVE)
    if active is None or active["status"] == "True":
        return None
    return ReasonMessage(active["reason"], active["message"])


def _holders(node: QuotaNode, keys: frozenset[FlavorResource], members: Iterable[ClusterQueue]) -> tuple[str, ...]:
    """The workloads that use most of what is missing. Those of the same queue are first among equals."""
    held = [
        (-sum(info.usage.get(key, 0) for key in keys), member.node is not node, "/".join(info.key))
        for member in members
        for info in member.reserving.values()
        if not keys.isdisjoint(info.usage)
    ]
    return tuple(name for *_, name in sorted(held)[:_MAX_HOLDERS])
