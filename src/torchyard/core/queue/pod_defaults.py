"""What the pods of a workload will request once they are created: RuntimeClass overhead, LimitRange defaults, limits.

Quota is reserved before any pod exists. So what admission plugins add to a pod has to be added to its template first,
and a template that they would reject must not get quota. The order of the additions is Kueue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import orjson

from torchyard.api import field_errors, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, pod_total
from torchyard.api.queue import messages

_CONTAINERS = ("initContainers", "containers")
_POD_SETS = "spec.podSets"
_Texts = Mapping[str, str | int]


@dataclass(frozen=True)
class LimitRangeItem:
    """The limits of one type in all LimitRanges of a namespace: the first defaults, and the strictest bounds."""

    default: _Texts = field(default_factory=dict)
    default_request: _Texts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    min: Amounts = field(default_factory=dict)

    def merge(self, item: Object) -> LimitRangeItem:
        upper, lower = dict(self.max), dict(self.min)
        for name, amount in _amounts(item.get("max")).items():
            upper[name] = min(upper.get(name, amount), amount)
        for name, amount in _amounts(item.get("min")).items():
            lower[name] = max(lower.get(name, amount), amount)
        return LimitRangeItem(
            default={**(item.get("default") or {}), **self.default},
            default_request={**(item.get("defaultRequest") or {}), **self.default_request},
            max=upper,
            min=lower,
        )


@dataclass(frozen=True)
class PodDefaults:
    """What applies to the pods of one namespace."""

    limits: Mapping[str, LimitRangeItem] = field(default_factory=dict)  # by type
    overheads: Mapping[str, _Texts] = field(default_factory=dict)  # by RuntimeClass

    @cached_property
    def key(self) -> bytes:
        """The same for equal defaults; empty if there are none."""
        if not self.limits and not self.overheads:
            return b""
        return orjson.dumps([self.limits, self.overheads], default=str, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def of(cls, limit_ranges: Iterable[Object], runtime_classes: Iterable[Object]) -> PodDefaults:
        limits: dict[str, LimitRangeItem] = {}
        for limit_range in sorted(limit_ranges, key=lambda obj: str(obj["metadata"]["name"])):
            for item in (limit_range.get("spec") or {}).get("limits") or ():
                limits[item["type"]] = limits.get(item["type"], LimitRangeItem()).merge(item)
        overheads = {
            obj["metadata"]["name"]: (obj.get("overhead") or {}).get("podFixed") or {} for obj in runtime_classes
        }
        return cls(limits, {name: overhead for name, overhead in overheads.items() if overhead})

    def apply(self, spec: Object) -> Object:
        """The spec of a pod as it will be created."""
        effective = dict(spec)
        overhead = self.overheads.get(spec.get("runtimeClassName") or "")
        if overhead and not spec.get("overhead"):
            effective["overhead"] = overhead
        of_containers, of_pods = self.limits.get("Container"), self.limits.get("Pod")
        for kind in _CONTAINERS:
            if spec.get(kind):
                effective[kind] = [_with_defaults(container, of_containers) for container in spec[kind]]
        return _with_defaults(effective, of_pods) if spec.get("resources") else effective

    def invalid_message(self, specs: Iterable[Object]) -> str:
        """Why the pods of these effective specs, one for each pod set, could not be created; empty if they could."""
        numbered = [(f"{_POD_SETS}[{index}].template.spec", spec) for index, spec in enumerate(specs)]
        errs = [err for path, spec in numbered for err in _requests_above_limits(spec, path)]
        if errs:
            return messages.invalid_resources(errs)
        errs = [err for path, spec in numbered for err in self._outside_limit_ranges(spec, path)]
        return messages.limit_range_not_satisfied(errs) if errs else ""

    def _outside_limit_ranges(self, spec: Object, path: str) -> Iterator[FieldError]:
        if of_containers := self.limits.get("Container"):
            for holder, at in _containers(spec, path):
                requests, limits = _resources(holder, "requests"), _resources(holder, "limits")
                smaller = {name: min(requests.get(name, amount), amount) for name, amount in limits.items()}
                larger = {name: max(requests.get(name, amount), amount) for name, amount in limits.items()}
                yield from _outside(of_containers, {**requests, **smaller}, {**requests, **larger}, at)
        if of_pods := self.limits.get("Pod"):
            total = pod_total(spec, "requests")
            yield from _outside(of_pods, total, total, path)


NO_DEFAULTS = PodDefaults()


class NamespaceDefaults:
    """The defaults of each namespace."""

    def __init__(self, limit_ranges: Iterable[Object], runtime_classes: Iterable[Object]) -> None:
        self._limit_ranges: dict[str, list[Object]] = {}
        for obj in limit_ranges:
            self._limit_ranges.setdefault(obj["metadata"]["namespace"], []).append(obj)
        self._runtime_classes = list(runtime_classes)
        self._without_limit_ranges = PodDefaults.of((), self._runtime_classes)
        self._defaults: dict[str, PodDefaults] = {}

    def of(self, namespace: str) -> PodDefaults:
        if namespace not in self._limit_ranges:
            return self._without_limit_ranges
        if namespace not in self._defaults:
            self._defaults[namespace] = PodDefaults.of(self._limit_ranges[namespace], self._runtime_classes)
        return self._defaults[namespace]


def _with_defaults(holder: Object, item: LimitRangeItem | None) -> Object:
    """A container, or a pod with resources of its own, with default limits and requests; limits become requests."""
    resources = holder.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if item is not None:
        limits = {**item.default, **limits}
        requests = {**item.default_request, **requests}
    if not limits and not requests:
        return holder
    return {**holder, "resources": {**resources, "limits": limits, "requests": {**limits, **requests}}}


def _containers(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    for kind in _CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"


def _requests_above_limits(spec: Object, path: str) -> Iterator[FieldError]:
    for holder, at in (*_containers(spec, path), (spec, f"{path}.resources")):
        names = _greater(_resources(holder, "requests"), _resources(holder, "limits"))
        if names:
            yield field_errors.invalid(at, names, messages.REQUESTS_ABOVE_LIMITS)


def _outside(item: LimitRangeItem, smaller: Amounts, larger: Amounts, path: str) -> Iterator[FieldError]:
    if names := _greater(larger, item.max):
        yield field_errors.invalid(path, names, messages.ABOVE_LIMIT_RANGE_MAX)
    if names := _greater(item.min, smaller):
        yield field_errors.invalid(path, names, messages.BELOW_LIMIT_RANGE_MIN)


def _greater(amounts: Amounts, others: Amounts) -> list[str]:
    return sorted(name for name, amount in amounts.items() if name in others and amount > others[name])


def _resources(holder: Object, which: str) -> Amounts:
    return _amounts((holder.get("resources") or {}).get(which))


def _amounts(texts: Mapping[str, str | int] | None) -> Amounts:
    return {name: quantity.parse(text) for name, text in (texts or {}).items()}
