"""Why a pending workload waits: its position, what is missing, who uses that, and whether it can fit at all.

Computed from the objects of the API alone, so that it is the same on a plane and on a cluster with Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.queue import messages
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.flavor_assigner import FlavorAssignmentMode, InsufficientQuota
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.quota_objects import QuotaObjects
from torchyard.core.queue.resources import FlavorResource, format_quantity
from torchyard.core.queue.visibility import StartEstimate, WorkloadPosition, estimate_start


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
            return messages.quota_never_suffices(self.resource, self.flavor, requested, missing)
        users = [(name, format_quantity(self.resource, amount)) for name, amount in self.used_by]
        return messages.quota_missing(self.resource, self.flavor, requested, missing, users)


@dataclass(frozen=True)
class PendingExplanation:
    cluster_queue: str
    position: int
    fits: bool  # there is enough unused quota: it waits for its turn
    can_fit: bool  # with enough unused quota
    missing: tuple[MissingQuota, ...]
    holders: tuple[str, ...]  # the workloads with most of what is missing
    estimate: StartEstimate | None

    @property
    def summary(self) -> str:
        """In one line, without the names of other workloads."""
        if self.fits:
            return messages.WAITS_FOR_ITS_TURN
        parts = [str(missing) for missing in self.missing]
        return "; ".join(parts) if self.can_fit else "; ".join([messages.NEVER_FITS, *parts])

    @property
    def lines(self) -> list[str]:
        lines = [messages.position_in_queue(self.position, self.cluster_queue), self.summary]
        if self.holders:
            lines.append(messages.quota_held_by(self.holders))
        if self.estimate is not None:
            lines.append(messages.start_estimate(self.estimate.seconds, self.estimate.deviation))
        return lines


_MAX_HOLDERS = 5


class PendingExplainer:
    def __init__(
        self,
        positions: Iterable[WorkloadPosition],
        *,
        flavors: Iterable[Object],
        cluster_queues: Iterable[Object],
        cohorts: Iterable[Object],
    ) -> None:
        """`positions`: of all workloads."""
        self._positions = list(positions)
        objects = QuotaObjects()
        for put, items in (
            (objects.put_flavor, flavors),
            (objects.put_cluster_queue, cluster_queues),
            (objects.put_cohort, cohorts),
        ):
            for obj in items:
                put(obj)
        hierarchy = objects.build()
        self._cluster_queues, self._members = hierarchy.cluster_queues, hierarchy.members
        for workload in self._positions:
            cq = self._cluster_queues.get(workload.info.reserved_in)
            if cq is not None:
                cq.reserving[workload.info.key] = workload.info
                cq.node.add_usage(workload.info.usage)

    def explain(self, workload: WorkloadPosition, now: float) -> PendingExplanation | None:
        """None if it is not pending, or its queue does not exist."""
        cq = self._cluster_queues.get(workload.cluster_queue)
        if cq is None or workload.position is None:
            return None
        assignment = cq.assigner_for(workload.info.requirements).assign(cq.node)
        reasons = [reason for pod_set in assignment.pod_sets for reason in pod_set.reasons]
        quotas = [reason for reason in reasons if isinstance(reason, InsufficientQuota)]
        members = self._members.get(cq.node.root, [cq])
        return PendingExplanation(
            cluster_queue=cq.name,
            position=workload.position,
            fits=assignment.mode is FlavorAssignmentMode.FIT,
            can_fit=not reasons or any(not reason.is_permanent for reason in quotas),
            missing=tuple(_missing(reason, members) for reason in quotas),
            holders=_holders(cq.node, {reason.key for reason in quotas if not reason.is_permanent}, members),
            estimate=estimate_start(workload, self._positions, now),
        )


def _missing(reason: InsufficientQuota, members: Iterable[ClusterQueue]) -> MissingQuota:
    requested = reason.before + reason.requested
    usage = ((member.name, member.node.usage.get(reason.key, 0)) for member in members)
    used_by = sorted(((name, amount) for name, amount in usage if amount), key=lambda user: (-user[1], user[0]))
    return MissingQuota(*reason.key, requested, requested - reason.limit, reason.is_permanent, tuple(used_by))


def _holders(node: QuotaNode, keys: set[FlavorResource], members: Iterable[ClusterQueue]) -> tuple[str, ...]:
    """The workloads that use most of what is missing. Those of the same queue are first among equals."""
    held = [
        (-sum(info.usage.get(key, 0) for key in keys), member.node is not node, "/".join(info.key))
        for member in members
        for info in member.reserving.values()
        if not keys.isdisjoint(info.usage)
    ]
    return tuple(name for *_, name in sorted(held)[:_MAX_HOLDERS])
