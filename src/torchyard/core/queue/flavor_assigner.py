"""Which flavors a workload would get in a ClusterQueue now: whether it fits, fits after preemption, or does not fit.

Everything that depends only on the configuration is computed once for each set of requirements and ClusterQueue, when
the `FlavorAssigner` is created. Each later attempt only compares quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from torchyard.api.queue import messages, names
from torchyard.core.queue.borrowing import lowest_subtree
from torchyard.core.queue.flavors import Flavor, matches_node_affinity, untolerated_taint
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.requirements import PodSet, SchedulingRequirements
from torchyard.core.queue.resources import FlavorResource, FlavorResourceQuantities, format_quantity
from torchyard.core.queue.specs import ClusterQueueSpec, ResourceGroup

_MILLI_PER_POD = 1000
# When several flavors were tried, the reason that is reported is the one most likely to go away by itself.
_REASON_PRECEDENCE = (
    messages.REASON_WAITING_FOR_QUOTA,
    messages.REASON_EXCEEDS_MAX_QUOTA,
    messages.REASON_NO_MATCHING_FLAVOR,
)


class FlavorAssignmentMode(IntEnum):
    """The larger the better."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


class PreemptionPossibility(IntEnum):
    """Whether the workloads that use a flavor can be preempted. The larger the better."""

    NO_CANDIDATES = 0
    PREEMPT = 1  # from the same ClusterQueue
    RECLAIM = 2  # only from ClusterQueues that borrow
    NOT_NEEDED = 3


class SimulatedPreemption(NamedTuple):
    possibility: PreemptionPossibility
    borrowing: int  # the borrowing height after the preemption
    shortage: int = 0  # what is missing even without all workloads that may be preempted


# By pod set and resource group: the first flavor to try.
FlavorScan = dict[tuple[str, int], int]
# Simulates the preemption that frees this much of one flavor and resource, as Kueue's preemption oracle does.
PreemptionOracle = Callable[[FlavorResource, int], SimulatedPreemption]
_T = TypeVar("_T")


class InsufficientQuota(NamedTuple):
    """Why one flavor and resource does not fit. Formatted only when it is reported, which is seldom."""

    key: FlavorResource
    before: int  # requested by the pod sets before this one
    requested: int
    limit: int
    is_permanent: bool  # exceeds the quota even if nothing else ran

    def __str__(self) -> str:
        flavor, resource = self.key
        if not self.is_permanent:
            missing = format_quantity(resource, self.before + self.requested - self.limit)
            return messages.insufficient_unused_quota(resource, flavor, missing)
        return messages.exceeds_capacity(
            resource,
            flavor,
            before=format_quantity(resource, self.before),
            requested=format_quantity(resource, self.requested),
            limit=format_quantity(resource, self.limit),
        )


@dataclass
class PodSetAssignment:
    name: str
    count: int
    flavors: dict[str, str] = field(default_factory=dict)  # by resource
    usage: dict[str, int] = field(default_factory=dict)  # by resource
    reasons: list[str | InsufficientQuota] = field(default_factory=list)  # why it does not fit


@dataclass
class Assignment:
    mode: FlavorAssignmentMode = FlavorAssignmentMode.FIT
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: FlavorResourceQuantities = field(default_factory=dict)
    borrowing: int = 0  # the largest borrowing height
    need_preemption: FlavorResourceQuantities = field(default_factory=dict)  # of the assigned flavors
    # Of all flavors that were tried: how much must be available before another attempt can have another result.
    insufficient: FlavorResourceQuantities = field(default_factory=dict)
    scan: FlavorScan = field(default_factory=dict)  # where a next attempt goes on, if flavors are left to try
    reason: str = messages.REASON_WAITING_FOR_QUOTA

    @property
    def message(self) -> str:
        return "; ".join(
            messages.flavors_not_assigned(pod_set.name, ", ".join(sorted(map(str, pod_set.reasons))))
            for pod_set in self.pod_sets
            if pod_set.reasons
        )


@dataclass
class _FlavorAttempt:
    """One flavor tried for one pod set and resource group."""

    flavor: str
    mode: FlavorAssignmentMode = FlavorAssignmentMode.FIT
    possibility: PreemptionPossibility = PreemptionPossibility.NOT_NEEDED
    borrowing: int = 0  # the largest borrowing height of its resources
    representative_borrowing: int = 0  # the borrowing height of the resource that it suits least
    insufficient: FlavorResourceQuantities = field(default_factory=dict)
    reasons: list[str | InsufficientQuota] = field(default_factory=list)
    reason: str = messages.REASON_WAITING_FOR_QUOTA


class _FlavorChoice(NamedTuple):
    name: str
    mismatch: str  # why the pods cannot use it; empty if they can


class _GroupRequest(NamedTuple):
    """What one pod set requests of one resource group, and the flavors of that group."""

    per_pod: dict[str, int]
    flavors: tuple[_FlavorChoice, ...]
    has_alternatives: bool  # whether more than one flavor is usable

    @classmethod
    def create(cls, per_pod: dict[str, int], flavors: tuple[_FlavorChoice, ...]) -> _GroupRequest:
        return cls(per_pod, flavors, sum(not choice.mismatch for choice in flavors) > 1)

    def restrict(self, allowed: frozenset[str]) -> _GroupRequest:
        choices = (
            choice
            if choice.name in allowed
            else _FlavorChoice(choice.name, messages.not_the_running_flavor(choice.name))
            for choice in self.flavors
        )
        return self._replace(flavors=tuple(choices))


class _PodSetRequest(NamedTuple):
    pod_set: PodSet
    per_pod: dict[str, int]
    groups: tuple[_GroupRequest, ...]
    unavailable: str  # a requested resource that no resource group covers


class FlavorAssigner:
    def __init__(
        self, requirements: SchedulingRequirements, spec: ClusterQueueSpec, flavors: Mapping[str, Flavor]
    ) -> None:
        self.requirements, self._spec = requirements, spec
        self._requests = tuple(_pod_set_request(pod_set, spec, flavors) for pod_set in requirements.pod_sets)
        self._totals = _totals(self._requests)

    def assign(
        self,
        node: QuotaNode,
        counts: Mapping[str, int] | None = None,
        *,
        allowed: frozenset[str] | None = None,
        oracle: PreemptionOracle | None = None,
        scan: FlavorScan | None = None,
    ) -> Assignment:
        """Assign a flavor to each resource of each pod set.

        `counts`: fewer pods than required, by pod set. `allowed`: only these flavors. `oracle`: chooses between
        flavors that need preemption. `scan`: the flavors before these were tried in an earlier attempt.
        """
        result = Assignment()
        for request in self._requests:
            pod_set = request.pod_set
            count = pod_set.count if counts is None else counts.get(pod_set.name, pod_set.count)
            assigned = PodSetAssignment(pod_set.name, count)
            result.pod_sets.append(assigned)
            if request.unavailable and count:
                assigned.reasons.append(messages.resource_unavailable(request.unavailable))
                result.mode, result.reason = FlavorAssignmentMode.NO_FIT, messages.REASON_NO_MATCHING_FLAVOR
                return result
            assigned.usage = {resource: amount * count for resource, amount in request.per_pod.items()}
            for index, group in enumerate(request.groups):
                group_request = group if allowed is None else group.restrict(allowed)
                first = scan.get((pod_set.name, index), 0) if scan else 0
                best, insufficient, tried = self._find_flavor(
                    group_request, assigned.usage, node, result.usage, oracle=oracle, first=first
                )
                assigned.reasons += best.reasons
                result.mode = min(result.mode, best.mode)
                result.borrowing = max(result.borrowing, best.borrowing)
                result.need_preemption.update(best.insufficient)
                result.insufficient.update(insufficient)
                if best.mode is FlavorAssignmentMode.NO_FIT:
                    result.reason = best.reason
                    return result
                if tried < len(group.flavors):
                    result.scan[pod_set.name, index] = tried
                for resource in group.per_pod:
                    assigned.flavors[resource] = best.flavor
                    key = (best.flavor, resource)
                    result.usage[key] = result.usage.get(key, 0) + assigned.usage[resource]
        return result

    def find_largest(self, attempt: Callable[[Mapping[str, int]], _T | None]) -> _T | None:
        """Partial admission: the result of `attempt` for the largest count it succeeds with, by binary search."""
        pod_set = self.requirements.reducible_pod_set
        if pod_set is None or pod_set.min_count is None:
            return None
        best: _T | None = None
        low, high = pod_set.min_count, pod_set.count - 1
        while low <= high:
            middle = (low + high + 1) // 2
            result = attempt({pod_set.name: middle})
            if result is not None:
                best, low = result, middle + 1
            else:
                high = middle - 1
        return best

    def assign_min_count(self, node: QuotaNode) -> Assignment | None:
        """The assignment of the smallest acceptable count; None if no pod set may be reduced."""
        pod_set = self.requirements.reducible_pod_set
        if pod_set is None or pod_set.min_count is None:
            return None
        return self.assign(node, {pod_set.name: pod_set.min_count})

    @property
    def fixed_request(self) -> FlavorResourceQuantities | None:
        """What it requests of each flavor; None if it may choose between flavors, or be reduced."""
        return self._totals if self.requirements.reducible_pod_set is None else None

    def retry_thresholds(self, node: QuotaNode, assignment: Assignment) -> FlavorResourceQuantities:
        """How much of one of these must be available before another attempt can have another result."""
        if len(self._requests) == 1:
            return assignment.insufficient
        if self._totals is not None:
            is_partial = assignment.mode is FlavorAssignmentMode.NO_FIT and self.requirements.reducible_pod_set is None
            totals = self._totals if is_partial else {}  # pod sets after the first that does not fit were not counted
            return {key: max(amount, totals.get(key, 0)) for key, amount in assignment.insufficient.items()}
        # The flavors of a pod set depend on those of the pod sets before it, so any increase may change the result.
        keys = {
            (choice.name, resource)
            for request in self._requests
            for group in request.groups
            for choice in group.flavors
            if not choice.mismatch
            for resource in group.per_pod
        }
        return {key: node.available(key) + 1 for key in keys}

    def _find_flavor(
        self,
        group: _GroupRequest,
        usage: dict[str, int],
        node: QuotaNode,
        assigned: FlavorResourceQuantities,
        *,
        oracle: PreemptionOracle | None,
        first: int,
    ) -> tuple[_FlavorAttempt, FlavorResourceQuantities, int]:
        """The best flavor of a resource group, what was insufficient in all that were tried, and how many were."""
        attempts: list[_FlavorAttempt] = []
        if not group.has_alternatives:
            oracle = None
        for name, mismatch in group.flavors[first:]:
            if mismatch:
                attempt = _FlavorAttempt(
                    name,
                    FlavorAssignmentMode.NO_FIT,
                    reasons=[mismatch],
                    reason=messages.REASON_NO_MATCHING_FLAVOR,
                )
            else:
                attempt = _FlavorAttempt(name)
                for resource in group.per_pod:
                    key = (name, resource)
                    self._check_quota(node, attempt, key, usage[resource], assigned=assigned, oracle=oracle)
            attempts.append(attempt)
            if not self._should_try_next_flavor(attempt):
                best = attempt
                break
        else:
            best = max(attempts, key=self._preference)
        tried = first + len(attempts)
        if len(attempts) == 1:
            return best, best.insufficient, tried
        if best.mode is FlavorAssignmentMode.FIT:
            return best, {}, tried
        best.reasons = [reason for attempt in attempts for reason in attempt.reasons]
        best.reason = min((attempt.reason for attempt in attempts), key=_REASON_PRECEDENCE.index)
        insufficient = {key: amount for attempt in attempts for key, amount in attempt.insufficient.items()}
        return best, insufficient, tried

    def _should_try_next_flavor(self, attempt: _FlavorAttempt) -> bool:
        if attempt.mode is FlavorAssignmentMode.NO_FIT or attempt.possibility is PreemptionPossibility.NO_CANDIDATES:
            return True
        if attempt.mode is FlavorAssignmentMode.PREEMPT and not self._spec.stop_at_preemption:
            return True
        return attempt.representative_borrowing > 0 and not self._spec.stop_at_borrowing

    def _preference(self, attempt: _FlavorAttempt) -> tuple[bool, tuple[bool, int, int]]:
        can_fit = attempt.mode is not FlavorAssignmentMode.NO_FIT
        return can_fit, self._rank(attempt.possibility, attempt.representative_borrowing)

    def _rank(self, possibility: PreemptionPossibility, borrowing: int) -> tuple[bool, int, int]:
        """The larger the better."""
        has_candidates = possibility is not PreemptionPossibility.NO_CANDIDATES
        if self._spec.prefer_preemption:
            return has_candidates, -borrowing, possibility
        return has_candidates, possibility, -borrowing

    def _check_quota(
        self,
        node: QuotaNode,
        attempt: _FlavorAttempt,
        key: FlavorResource,
        requested: int,
        *,
        assigned: FlavorResourceQuantities,
        oracle: PreemptionOracle | None,
    ) -> None:
        """Record in the attempt whether one flavor and resource fits now, after preemption, or never."""
        before = assigned.get(key, 0)
        needed = before + requested
        available = node.available(key)
        if needed <= available:
            if node.parent is not None:
                self._record(attempt, PreemptionPossibility.NOT_NEEDED, lowest_subtree(node, key, needed).height)
            return
        capacity = node.potential_available(key)
        if needed > capacity:
            attempt.mode, attempt.reason = FlavorAssignmentMode.NO_FIT, messages.REASON_EXCEEDS_MAX_QUOTA
            attempt.reasons.append(InsufficientQuota(key, before, requested, capacity, True))
            return
        attempt.insufficient[key] = needed
        attempt.reasons.append(InsufficientQuota(key, before, requested, available, False))
        policy = self._spec.preemption
        may_reclaim_in_hierarchy = lowest_subtree(node, key, needed).parent is not None
        if needed > node.nominal(key) and not may_reclaim_in_hierarchy and not policy.may_preempt_while_borrowing:
            attempt.mode = FlavorAssignmentMode.NO_FIT
            return
        may_reclaim = node.parent is not None and policy.reclaim_within_cohort != names.NEVER
        may_preempt = policy.within_cluster_queue != names.NEVER or may_reclaim
        if oracle is not None and may_preempt:
            possibility, borrowing, shortage = oracle(key, needed)
            if shortage:
                attempt.insufficient[key] = min(needed, available + shortage)
        else:
            possibility = PreemptionPossibility.RECLAIM if may_preempt else PreemptionPossibility.NO_CANDIDATES
            borrowing = lowest_subtree(node, key, needed).height
        attempt.mode = min(attempt.mode, FlavorAssignmentMode.PREEMPT)
        self._record(attempt, possibility, borrowing)

    def _record(self, attempt: _FlavorAttempt, possibility: PreemptionPossibility, borrowing: int) -> None:
        """The flavor is as good as the resource that suits it least."""
        attempt.borrowing = max(attempt.borrowing, borrowing)
        if self._rank(possibility, borrowing) < self._rank(attempt.possibility, attempt.representative_borrowing):
            attempt.possibility, attempt.representative_borrowing = possibility, borrowing


def _totals(requests: tuple[_PodSetRequest, ...]) -> FlavorResourceQuantities | None:
    """What all pod sets request of each flavor; None if a pod set may choose between flavors."""
    totals: FlavorResourceQuantities = {}
    for request in requests:
        for group in request.groups:
            if group.has_alternatives:
                return None
            flavor = next((choice.name for choice in group.flavors if not choice.mismatch), "")
            for resource, amount in group.per_pod.items():
                key = (flavor, resource)
                totals[key] = totals.get(key, 0) + amount * request.pod_set.count
    return totals


def _pod_set_request(pod_set: PodSet, spec: ClusterQueueSpec, flavors: Mapping[str, Flavor]) -> _PodSetRequest:
    per_pod = dict(pod_set.requests)
    if any(names.PODS in group.resources for group in spec.groups):
        per_pod[names.PODS] = _MILLI_PER_POD
    by_group: dict[int, dict[str, int]] = {}
    unavailable = ""
    for resource in sorted(per_pod):
        covering = next((index for index, group in enumerate(spec.groups) if resource in group.resources), None)
        if covering is not None:
            by_group.setdefault(covering, {})[resource] = per_pod[resource]
        elif per_pod[resource]:
            unavailable = unavailable or resource
    groups = [
        _GroupRequest.create(requests, _flavor_choices(pod_set, spec.groups[index], flavors))
        for index, requests in by_group.items()
    ]
    return _PodSetRequest(pod_set, per_pod, tuple(groups), unavailable)


def _flavor_choices(pod_set: PodSet, group: ResourceGroup, flavors: Mapping[str, Flavor]) -> tuple[_FlavorChoice, ...]:
    return tuple(_FlavorChoice(name, _flavor_mismatch(pod_set, flavors.get(name), name)) for name in group.flavors)


def _flavor_mismatch(pod_set: PodSet, flavor: Flavor | None, name: str) -> str:
    if flavor is None:
        return messages.flavor_not_found(name)
    taint = untolerated_taint(flavor, pod_set)
    if taint is not None:
        return messages.untolerated_taint(taint["key"], taint.get("value") or "", taint["effect"], name)
    return "" if matches_node_affinity(flavor, pod_set) else messages.affinity_mismatch(name)
