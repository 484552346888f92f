"""Which flavors a workload would get in a queue now: whether it fits, would fit after preemption, or not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from torchyard.api.queue import names, words
from torchyard.core.queue.amounts import Amounts, FlavorResource, shown
from torchyard.core.queue.flavors import Flavor, matches, untolerated
from torchyard.core.queue.queues import Group, Queue
from torchyard.core.queue.quota import Node
from torchyard.core.queue.shapes import PodSet, Shape


class Mode(IntEnum):
    """The larger the better."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


@dataclass
class PodSetAssignment:
    name: str
    count: int
    flavors: dict[str, str] = field(default_factory=dict)  # resource → flavor
    usage: dict[str, int] = field(default_factory=dict)  # resource → amount
    reasons: list[str] = field(default_factory=list)


@dataclass
class Assignment:
    mode: Mode = Mode.FIT
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: Amounts = field(default_factory=dict)
    borrows: int = 0  # how far up in the cohorts
    short: Amounts = field(default_factory=dict)  # what fits only after preemption, or when somebody finishes
    reason: str = words.WAITING

    @property
    def message(self) -> str:
        for one in self.pod_sets:
            if one.reasons:
                return words.not_assigned(one.name, ", ".join(one.reasons))
        return ""


@dataclass
class _Attempt:
    """One flavor tried for one pod set and resource group."""

    flavor: str
    mode: Mode = Mode.FIT
    borrows: int = 0
    short: Amounts = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    why: str = words.WAITING


def assign(
    shape: Shape, queue: Queue, node: Node, flavors: Mapping[str, Flavor], counts: Mapping[str, int] | None = None
) -> Assignment:
    """`counts` asks for fewer pods than the shape says."""
    result = Assignment()
    for pod_set in shape.pod_sets:
        count = (counts or {}).get(pod_set.name, pod_set.count)
        asked = {name: amount * count for name, amount in pod_set.requests.items()}
        if queue.group_of(names.PODS) is not None:
            asked[names.PODS] = count * 1000
        made = PodSetAssignment(pod_set.name, count, usage=asked)
        result.pod_sets.append(made)
        for group, resources in _by_group(queue, asked, made, result):
            best = _best_flavor(_Search(pod_set, queue, node, flavors, result.usage), group, resources)
            made.reasons += best.reasons
            result.mode = min(result.mode, best.mode)
            result.borrows = max(result.borrows, best.borrows)
            result.short.update(best.short)
            if best.mode is Mode.NO_FIT:
                result.reason = best.why
                return result
            for name, amount in resources.items():
                made.flavors[name] = best.flavor
                key = (best.flavor, name)
                result.usage[key] = result.usage.get(key, 0) + amount
        if result.mode is Mode.NO_FIT:
            return result
    return result


def _by_group(
    queue: Queue, asked: dict[str, int], made: PodSetAssignment, result: Assignment
) -> list[tuple[Group, dict[str, int]]]:
    """What is asked, by the groups that have it; a resource that no group has is a reason."""
    found: dict[int, dict[str, int]] = {}
    for name in sorted(asked):
        group = next((index for index, one in enumerate(queue.groups) if name in one.resources), None)
        if group is not None:
            found.setdefault(group, {})[name] = asked[name]
        elif asked[name]:
            made.reasons.append(words.uncovered(name))
            result.mode, result.reason = Mode.NO_FIT, words.MISCONFIGURED
            return []
    return [(queue.groups[index], resources) for index, resources in found.items()]


@dataclass
class _Search:
    pod_set: PodSet
    queue: Queue
    node: Node
    flavors: Mapping[str, Flavor]
    taken: Amounts  # by the pod sets before this one


def _best_flavor(search: _Search, group: Group, resources: dict[str, int]) -> _Attempt:
    queue = search.queue
    keys = frozenset(key for name in group.flavors if name in search.flavors for key in search.flavors[name].labels)
    attempts: list[_Attempt] = []
    for name in group.flavors:
        attempt = _try(search, name, resources, keys)
        attempts.append(attempt)
        if attempt.mode is Mode.FIT and (attempt.borrows == 0 or queue.stop_at_borrowing):
            break
        if attempt.mode is Mode.PREEMPT and queue.stop_at_preemption:
            break
    best = max(attempts, key=lambda one: _preference(one, queue))
    if best.mode is not Mode.FIT:
        best.reasons = [said for one in attempts for said in one.reasons]
        best.short = {key: amount for one in attempts for key, amount in one.short.items()}
        best.why = next((one.why for one in attempts if one.why == words.WAITING), attempts[0].why)
    return best


def _preference(attempt: _Attempt, queue: Queue) -> tuple[int, int, int]:
    if queue.prefer_preemption:
        return int(attempt.mode is not Mode.NO_FIT), -attempt.borrows, attempt.mode
    return int(attempt.mode is not Mode.NO_FIT), attempt.mode, -attempt.borrows


def _try(search: _Search, name: str, resources: dict[str, int], keys: frozenset[str]) -> _Attempt:
    attempt = _Attempt(name)
    flavor = search.flavors.get(name)
    if flavor is None:
        return _refused(attempt, words.flavor_missing(name))
    taint = untolerated(flavor, search.pod_set)
    if taint is not None:
        said = f"{{{taint['key']} {taint.get('value') or ''} {taint['effect']} <nil>}}"
        return _refused(attempt, words.untolerated(said, name))
    if keys and not matches(flavor, search.pod_set, keys):
        return _refused(attempt, words.no_affinity(name))
    for resource, amount in resources.items():
        _weigh(search, attempt, (name, resource), amount)
    return attempt


def _refused(attempt: _Attempt, said: str) -> _Attempt:
    attempt.mode, attempt.why = Mode.NO_FIT, words.NO_FLAVOR
    attempt.reasons.append(said)
    return attempt


def _weigh(search: _Search, attempt: _Attempt, key: FlavorResource, amount: int) -> None:
    """Whether the quota of one flavor and resource is enough, now or ever."""
    node, (flavor, resource) = search.node, key
    before = search.taken.get(key, 0)
    needed = before + amount
    available = node.available(key)
    if needed <= available:
        attempt.borrows = max(attempt.borrows, node.distance(key, needed))
        return
    capacity = node.capacity(key)
    if needed > capacity:
        attempt.mode, attempt.why = Mode.NO_FIT, words.TOO_BIG
        texts = {"before": shown(resource, before), "asked": shown(resource, amount)}
        attempt.reasons.append(words.beyond(resource, flavor, limit=shown(resource, capacity), **texts))
        return
    attempt.short[key] = needed
    attempt.reasons.append(words.insufficient(resource, flavor, shown(resource, needed - available)))
    policy = search.queue.preemption
    may_preempt = policy.within != names.NEVER or (node.parent is not None and policy.reclaim != names.NEVER)
    if may_preempt and (needed <= node.nominal(key) or policy.borrow):
        attempt.mode = min(attempt.mode, Mode.PREEMPT)
        attempt.borrows = max(attempt.borrows, node.distance(key, needed))
    else:
        attempt.mode = Mode.NO_FIT


def assign_partly(shape: Shape, queue: Queue, node: Node, flavors: Mapping[str, Flavor]) -> Assignment | None:
    """The assignment with the most pods that fits now, if the shape may be smaller than it asks for."""
    pod_set = shape.partial
    if pod_set is None or pod_set.least is None:
        return None
    best: Assignment | None = None
    low, high = pod_set.least, pod_set.count - 1
    while low <= high:
        middle = (low + high + 1) // 2
        tried = assign(shape, queue, node, flavors, {pod_set.name: middle})
        if tried.mode is Mode.FIT:
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best
