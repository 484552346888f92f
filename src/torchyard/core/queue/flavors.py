"""Flavors: whether the pods of a pod set may run on a kind of hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.core.queue.requirements import PodSet

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Flavor:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    tolerations: tuple[Object, ...]

    @classmethod
    def of(cls, obj: Object) -> Flavor:
        spec = obj.get("spec") or {}
        return cls(
            obj["metadata"]["name"],
            spec.get("nodeLabels") or {},
            tuple(spec.get("nodeTaints") or ()),
            tuple(spec.get("tolerations") or ()),
        )


def untolerated(flavor: Flavor, pod_set: PodSet) -> Object | None:
    """The first taint that keeps these pods away."""
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.taints:
        if taint.get("effect") in _KEEPS_AWAY and not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def matches(flavor: Flavor, pod_set: PodSet) -> bool:
    """Whether the pods' wishes for nodes agree with the flavor's labels.

    Only the keys that this flavor has are looked at, as by Kueue: the others are the scheduler's business.
    """
    labels = flavor.labels
    if any(labels.get(key, value) != value for key, value in pod_set.selector.items()):
        return False
    return not pod_set.terms or any(_term_matches(term, labels) for term in pod_set.terms)


def _term_matches(term: Object, labels: Mapping[str, str]) -> bool:
    return all(_expression(one, labels) for one in term.get("matchExpressions") or () if one["key"] in labels)


def _expression(one: Object, labels: Mapping[str, str]) -> bool:
    value: str | None = labels.get(one["key"])
    values: list[str] = one.get("values") or []
    match one["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if one["operator"] == "Gt" else number < bound
