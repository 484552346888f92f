"""Which flavors a workload would get in a queue now: whether it fits, would fit after preemption, or not, and why.

What depends on the configuration only is worked out once for a shape and a queue (`Plan`); what is left for every look
is to weigh amounts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

from torchyard.api.queue import messages, names
from torchyard.core.queue.flavors import Flavor, matches, untolerated
from torchyard.core.queue.quota import Node
from torchyard.core.queue.requirements import PodSet, Shape
from torchyard.core.queue.resources import Amounts, FlavorResource, shown
from torchyard.core.queue.specs import Group, Queue

# Of the reasons against each of several flavors the one that is told: what passes most easily.
_LIGHTEST_FIRST = (messages.WAITING, messages.TOO_BIG, messages.NO_FLAVOR)


class Mode(IntEnum):
    """The larger the better."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


class Chance(IntEnum):
    """Whether those who hold a flavor can be made to give it back. The larger the better."""

    NONE = 0
    PREEMPTION = 1
    RECLAMATION = 2
    NOT_NEEDED = 3


Found = TypeVar("Found")
# For so much of something: whether it can be had, and how far up in the cohorts it is borrowed then.
Outlook = Callable[[FlavorResource, int], tuple[Chance, int]]


class Short(NamedTuple):
    """Too little of something, now or for ever; put into words only when somebody is told."""

    key: FlavorResource
    before: int
    asked: int
    limit: int
    is_final: bool

    def __str__(self) -> str:
        flavor, resource = self.key
        if not self.is_final:
            missing = shown(resource, self.before + self.asked - self.limit)
            return messages.insufficient(resource, flavor, missing)
        texts = (shown(resource, amount) for amount in (self.before, self.asked, self.limit))
        before, asked, limit = texts
        return messages.beyond(resource, flavor, before=before, asked=asked, limit=limit)


@dataclass
class PodSetAssignment:
    name: str
    count: int
    flavors: dict[str, str] = field(default_factory=dict)  # resource → flavor
    usage: dict[str, int] = field(default_factory=dict)  # resource → amount
    reasons: list[str | Short] = field(default_factory=list)


@dataclass
class Assignment:
    mode: Mode = Mode.FIT
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: Amounts = field(default_factory=dict)
    borrows: int = 0  # how far up in the cohorts
    short: Amounts = field(default_factory=dict)  # what of the flavors it would get others have to give back first
    missed: Amounts = field(default_factory=dict)  # what there was too little of, in any flavor that was tried
    reason: str = messages.WAITING

    @property
    def message(self) -> str:
        said = ((one.name, ", ".join(sorted(map(str, one.reasons)))) for one in self.pod_sets if one.reasons)
        return "; ".join(messages.not_assigned(name, why) for name, why in said)


@dataclass
class _Attempt:
    """One flavor tried for one pod set and resource group."""

    flavor: str
    mode: Mode = Mode.FIT
    chance: Chance = Chance.NOT_NEEDED
    borrows: int = 0
    short: Amounts = field(default_factory=dict)
    reasons: list[str | Short] = field(default_factory=list)
    why: str = messages.WAITING


class _Part(NamedTuple):
    """What one pod set asks of one resource group, and which flavors come into question."""

    per_pod: dict[str, int]
    flavors: tuple[tuple[str, str], ...]  # name, and why not
    is_a_choice: bool  # whether there are several

    @classmethod
    def of(cls, per_pod: dict[str, int], flavors: tuple[tuple[str, str], ...]) -> _Part:
        return cls(per_pod, flavors, sum(not refusal for _, refusal in flavors) > 1)

    def within(self, only: frozenset[str]) -> _Part:
        kept = ((name, refusal if name in only else messages.other_flavor(name)) for name, refusal in self.flavors)
        return self._replace(flavors=tuple(kept))


class _Step(NamedTuple):
    pod_set: PodSet
    per_pod: dict[str, int]
    parts: tuple[_Part, ...]
    uncovered: str  # a resource that no group has


class Plan:
    def __init__(self, shape: Shape, queue: Queue, flavors: Mapping[str, Flavor]) -> None:
        self.shape, self._queue = shape, queue
        self._steps = tuple(_step(one, queue, flavors) for one in shape.pod_sets)

    def assign(
        self,
        node: Node,
        counts: Mapping[str, int] | None = None,
        *,
        only: frozenset[str] | None = None,
        outlook: Outlook | None = None,
    ) -> Assignment:
        """`counts` asks for fewer pods than the shape says, `only` for these flavors and no others.

        `outlook` helps to choose between flavors that are full.
        """
        result = Assignment()
        for step in self._steps:
            pod_set = step.pod_set
            count = pod_set.count if counts is None else counts.get(pod_set.name, pod_set.count)
            made = PodSetAssignment(pod_set.name, count)
            result.pod_sets.append(made)
            if step.uncovered and count:
                made.reasons.append(messages.uncovered(step.uncovered))
                result.mode, result.reason = Mode.NO_FIT, messages.NO_FLAVOR
                return result
            made.usage = {name: amount * count for name, amount in step.per_pod.items()}
            for part in step.parts:
                choices = part if only is None else part.within(only)
                best, missed = self._best(choices, made.usage, node, result.usage, outlook)
                made.reasons += best.reasons
                result.mode = min(result.mode, best.mode)
                result.borrows = max(result.borrows, best.borrows)
                result.short.update(best.short)
                result.missed.update(missed)
                if best.mode is Mode.NO_FIT:
                    result.reason = best.why
                    return result
                for name in part.per_pod:
                    made.flavors[name] = best.flavor
                    key = (best.flavor, name)
                    result.usage[key] = result.usage.get(key, 0) + made.usage[name]
        return result

    def largest(self, tried: Callable[[Mapping[str, int]], Found | None]) -> Found | None:
        """What `tried` finds for the most pods it finds anything for, if the shape may be smaller than it asks for."""
        pod_set = self.shape.partial
        if pod_set is None or pod_set.least is None:
            return None
        best: Found | None = None
        low, high = pod_set.least, pod_set.count - 1
        while low <= high:
            middle = (low + high + 1) // 2
            found = tried({pod_set.name: middle})
            if found is not None:
                best, low = found, middle + 1
            else:
                high = middle - 1
        return best

    def assign_least(self, node: Node) -> Assignment | None:
        """What the smallest acceptable size would get, if there is a smaller one than asked."""
        pod_set = self.shape.partial
        if pod_set is None or pod_set.least is None:
            return None
        return self.assign(node, {pod_set.name: pod_set.least})

    def needs(self, node: Node, assignment: Assignment) -> Amounts:
        """What must be available of one of these keys before another look can come to another answer."""
        if len(self._steps) == 1:
            return assignment.missed
        # Which flavor is left for a pod set depends on those the sets before it got: anything more may change it.
        keys = {
            (name, resource)
            for step in self._steps
            for part in step.parts
            for name, refusal in part.flavors
            if not refusal
            for resource in part.per_pod
        }
        return {key: node.available(key) + 1 for key in keys}

    def _best(
        self, part: _Part, usage: dict[str, int], node: Node, taken: Amounts, outlook: Outlook | None
    ) -> tuple[_Attempt, Amounts]:
        """With it, what there was too little of in all the flavors that were tried."""
        attempts: list[_Attempt] = []
        if not part.is_a_choice:
            outlook = None
        for name, refusal in part.flavors:
            if refusal:
                attempt = _Attempt(name, Mode.NO_FIT, reasons=[refusal], why=messages.NO_FLAVOR)
            else:
                attempt = _Attempt(name)
                for resource in part.per_pod:
                    self._weigh(node, attempt, (name, resource), usage[resource], taken=taken, outlook=outlook)
            attempts.append(attempt)
            if self._is_good_enough(attempt):
                break
        if len(attempts) == 1:
            return attempts[0], attempts[0].short
        best = max(attempts, key=self._preference)
        if best.mode is Mode.FIT:
            return best, {}
        best.reasons = [said for one in attempts for said in one.reasons]
        best.why = min((one.why for one in attempts), key=_LIGHTEST_FIRST.index)
        return best, {key: amount for one in attempts for key, amount in one.short.items()}

    def _is_good_enough(self, attempt: _Attempt) -> bool:
        """Whether no other flavor is tried."""
        if attempt.mode is Mode.NO_FIT or attempt.chance is Chance.NONE:
            return False
        if attempt.mode is Mode.PREEMPT and not self._queue.stop_at_preemption:
            return False
        return attempt.borrows == 0 or self._queue.stop_at_borrowing

    def _preference(self, attempt: _Attempt) -> tuple[bool, bool, int, int]:
        is_possible, has_chance = attempt.mode is not Mode.NO_FIT, attempt.chance is not Chance.NONE
        if self._queue.prefer_preemption:
            return is_possible, has_chance, -attempt.borrows, attempt.chance
        return is_possible, has_chance, attempt.chance, -attempt.borrows

    def _weigh(
        self,
        node: Node,
        attempt: _Attempt,
        key: FlavorResource,
        amount: int,
        *,
        taken: Amounts,
        outlook: Outlook | None,
    ) -> None:
        """Whether the quota of one flavor and resource is enough, now or ever."""
        before = taken.get(key, 0)
        needed = before + amount
        available = node.available(key)
        if needed <= available:
            if node.parent is not None:
                attempt.borrows = max(attempt.borrows, node.distance(key, needed))
            return
        capacity = node.capacity(key)
        if needed > capacity:
            attempt.mode, attempt.why = Mode.NO_FIT, messages.TOO_BIG
            attempt.reasons.append(Short(key, before, amount, capacity, True))
            return
        attempt.short[key] = needed
        attempt.reasons.append(Short(key, before, amount, available, False))
        policy = self._queue.preemption
        may_preempt = policy.within != names.NEVER or (node.parent is not None and policy.reclaim != names.NEVER)
        if needed <= node.nominal(key) or (may_preempt and policy.borrow):
            chance, borrows = Chance.RECLAMATION if may_preempt else Chance.NONE, node.distance(key, needed)
            if outlook is not None and may_preempt:
                chance, borrows = outlook(key, needed)
            attempt.mode, attempt.chance = min(attempt.mode, Mode.PREEMPT), min(attempt.chance, chance)
            attempt.borrows = max(attempt.borrows, borrows)
        else:
            attempt.mode = Mode.NO_FIT


def _step(pod_set: PodSet, queue: Queue, flavors: Mapping[str, Flavor]) -> _Step:
    per_pod = dict(pod_set.requests)
    if queue.group_of(names.PODS) is not None:
        per_pod[names.PODS] = 1000
    by_group: dict[int, dict[str, int]] = {}
    uncovered = ""
    for name in sorted(per_pod):
        group = next((index for index, one in enumerate(queue.groups) if name in one.resources), None)
        if group is not None:
            by_group.setdefault(group, {})[name] = per_pod[name]
        elif per_pod[name]:
            uncovered = uncovered or name
    parts = [_Part.of(asked, _choices(pod_set, queue.groups[index], flavors)) for index, asked in by_group.items()]
    return _Step(pod_set, per_pod, tuple(parts), uncovered)


def _choices(pod_set: PodSet, group: Group, flavors: Mapping[str, Flavor]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _refusal(pod_set, flavors.get(name), name)) for name in group.flavors)


def _refusal(pod_set: PodSet, flavor: Flavor | None, name: str) -> str:
    if flavor is None:
        return messages.flavor_missing(name)
    taint = untolerated(flavor, pod_set)
    if taint is not None:
        said = f"{{{taint['key']} {taint.get('value') or ''} {taint['effect']} <nil>}}"
        return messages.untolerated(said, name)
    return "" if matches(flavor, pod_set) else messages.no_affinity(name)
