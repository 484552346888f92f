"""Builds the ClusterQueues under a tree of cohorts from their specs, and finds out which of them cannot admit.

The hierarchy is rebuilt as a whole when the configuration changes, which is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torchyard.api.queue import names, queue_messages
from torchyard.api.queue.messages import ReasonMessage
from torchyard.core.queue.cluster_queue import ClusterQueue
from torchyard.core.queue.dominant_resource_share import set_lendable
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.quota import QuotaNode
from torchyard.core.queue.specs import ClusterQueueSpec, CohortSpec
from torchyard.core.queue.workload_info import Key


class QuotaHierarchy(NamedTuple):
    cluster_queues: dict[str, ClusterQueue]
    members: dict[QuotaNode, list[ClusterQueue]]  # the ClusterQueues under each root
    cohorts: dict[str, QuotaNode]


def build_hierarchy(
    cluster_queues: Mapping[str, ClusterQueueSpec],
    flavors: Mapping[str, Flavor],
    cohorts: Mapping[str, CohortSpec],
    checks: Mapping[str, bool],
    *,
    is_fair: bool = False,
    usage_of: Callable[[Key], float] | None = None,
) -> QuotaHierarchy:
    """`checks`: whether each admission check is active. `is_fair`: whether cohorts share by weight.

    `usage_of`: what a LocalQueue consumed, with admission fair sharing.
    """
    cycles = find_cohort_cycles({name: cohort.parent for name, cohort in cohorts.items() if cohort.parent})
    nodes: dict[str, QuotaNode] = {}
    hierarchy = QuotaHierarchy({}, {}, nodes)

    def cohort_node(name: str) -> QuotaNode:
        if name not in nodes:
            cohort = cohorts.get(name)
            node = nodes[name] = (
                QuotaNode(name, {}) if cohort is None else QuotaNode(name, cohort.quotas, cohort.weight)
            )
            if cohort is not None and cohort.parent and name not in cycles:
                node.attach_to(cohort_node(cohort.parent))
        return nodes[name]

    for name in cohorts:
        if name not in cycles:
            cohort_node(name)  # a cohort without queues lends its quota, too
    for name in sorted(cluster_queues):
        spec = cluster_queues[name]
        node = QuotaNode(name, spec.quotas, spec.weight)
        cq = ClusterQueue(spec, node, flavors, usage_of if spec.is_usage_based else None)
        hierarchy.cluster_queues[name] = cq
        cycle = cycles.get(spec.cohort, [])
        cq.inactive = _inactive_reason(spec, flavors, checks, cycle)
        if spec.cohort and not cycle:
            cq.node.attach_to(cohort_node(spec.cohort))
    for cq in hierarchy.cluster_queues.values():
        hierarchy.members.setdefault(cq.node.root, []).append(cq)
    for root in hierarchy.members:
        root.compute_subtree_quota()
    if is_fair:
        set_lendable(nodes.values())
    return hierarchy


def find_cohort_cycles(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """The cohorts that are under no root because their ancestors form a cycle, each with that cycle."""
    cycles: dict[str, list[str]] = {}
    for start in parents:
        visited: list[str] = []
        cohort = start
        while cohort in parents and cohort not in visited:
            visited.append(cohort)
            cohort = parents[cohort]
        if cohort in visited:
            cycles[start] = [*visited[visited.index(cohort) :], cohort]
    return cycles


def _inactive_reason(
    spec: ClusterQueueSpec, flavors: Mapping[str, Flavor], checks: Mapping[str, bool], cycle: list[str]
) -> ReasonMessage | None:
    reason, why = "", ""
    missing_flavors = [name for name in spec.flavors if name not in flavors]
    missing_checks = [rule.name for rule in spec.checks if rule.name not in checks]
    inactive_checks = [rule.name for rule in spec.checks if not checks.get(rule.name)]
    if spec.is_terminating:
        return ReasonMessage(queue_messages.REASON_TERMINATING, queue_messages.CLUSTER_QUEUE_IS_TERMINATING)
    if spec.stop_policy != names.NO_STOP:
        reason, why = queue_messages.REASON_STOPPED, queue_messages.CLUSTER_QUEUE_IS_STOPPED
    elif missing_flavors:
        reason, why = queue_messages.REASON_FLAVOR_NOT_FOUND, queue_messages.missing_flavors(missing_flavors)
    elif missing_checks:
        reason, why = queue_messages.REASON_CHECK_NOT_FOUND, queue_messages.missing_checks(missing_checks)
    elif inactive_checks:
        reason, why = queue_messages.REASON_CHECK_INACTIVE, queue_messages.inactive_checks(inactive_checks)
    elif cycle:
        reason, why = queue_messages.REASON_COHORT_CYCLE, queue_messages.cohort_cycle(cycle)
    return ReasonMessage(reason, queue_messages.cannot_admit(why)) if reason else None
