"""From the configuration to pools under a tree of quota, and why a queue cannot admit: built anew when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.core.queue.cluster_queue import Pool
from torchyard.core.queue.flavors import Flavor
from torchyard.core.queue.quota import Node, cycles
from torchyard.core.queue.specs import Queue, read_groups


class Tree(NamedTuple):
    pools: dict[str, Pool]
    neighbours: dict[Node, list[Pool]]  # the pools under a root
    cycles: dict[str, list[str]]  # cohorts that are under none, each with the way that comes back


def build(
    queues: Mapping[str, Queue],
    flavors: Mapping[str, Flavor],
    cohorts: Mapping[str, Object],
    checks: Mapping[str, Object],
) -> Tree:
    """`cohorts`: their specs; `checks`: whether each is active."""
    parents = {name: spec.get("parentName") or "" for name, spec in cohorts.items()}
    tree = Tree({}, {}, cycles({name: parent for name, parent in parents.items() if parent}))
    nodes: dict[str, Node] = {}

    def cohort(name: str) -> Node:
        if name not in nodes:
            node = nodes[name] = Node(name, read_groups(cohorts.get(name, {}))[1])
            if parents.get(name) and name not in tree.cycles:
                node.attach_to(cohort(parents[name]))
        return nodes[name]

    for name in sorted(queues):
        queue = queues[name]
        pool = tree.pools[name] = Pool(queue, Node(name, queue.quotas), flavors)
        cycle = tree.cycles.get(queue.cohort, [])
        pool.inactive = _why_inactive(queue, flavors, checks, cycle)
        if queue.cohort and not cycle:
            pool.node.attach_to(cohort(queue.cohort))
    for pool in tree.pools.values():
        tree.neighbours.setdefault(pool.node.root, []).append(pool)
    for root in tree.neighbours:
        root.settle()
    return tree


def _why_inactive(
    queue: Queue, flavors: Mapping[str, Flavor], checks: Mapping[str, Object], cycle: list[str]
) -> tuple[str, str] | None:
    """Reason and message."""
    if queue.is_terminating:
        return messages.TERMINATING, messages.cannot_admit("clusterQueue is terminating")
    if queue.stop != names.NO_STOP:
        return messages.STOPPED, messages.cannot_admit("is stopped")
    missing = [name for name in queue.flavors if name not in flavors]
    if missing:
        return messages.FLAVOR_MISSING, messages.cannot_admit(messages.flavors_missing(missing))
    absent = [one.name for one in queue.checks if one.name not in checks]
    if absent:
        return messages.CHECK_MISSING, messages.cannot_admit(messages.checks_missing(absent))
    inactive = [one.name for one in queue.checks if not checks[one.name]["active"]]
    if inactive:
        return messages.CHECK_INACTIVE, messages.cannot_admit(messages.checks_inactive(inactive))
    if cycle:
        return messages.COHORT_CYCLE, messages.cannot_admit(messages.cycle(cycle))
    return None
