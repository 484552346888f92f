"""ResourceFlavors: whether the pods of a pod set may run on the nodes of a flavor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.api.node_selectors import parse_int64
from torchyard.api.objects import Object
from torchyard.core.queue.requirements import PodSet

_EXCLUDING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Flavor:
    name: str
    node_labels: Mapping[str, str]
    taints: tuple[Object, ...]
    tolerations: tuple[Object, ...]

    @classmethod
    def parse(cls, obj: Object) -> Flavor:
        spec = obj.get("spec") or {}
        return cls(
            name=obj["metadata"]["name"],
            node_labels=spec.get("nodeLabels") or {},
            taints=tuple(spec.get("nodeTaints") or ()),
            tolerations=tuple(spec.get("tolerations") or ()),
        )


def untolerated_taint(flavor: Flavor, pod_set: PodSet) -> Object | None:
    """The first taint that keeps these pods off the flavor's nodes."""
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.taints:
        if taint.get("effect") in _EXCLUDING_EFFECTS and not any(
            _tolerates(toleration, taint) for toleration in tolerations
        ):
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


def matches_node_affinity(flavor: Flavor, pod_set: PodSet) -> bool:
    """Whether the pods' node selector and affinity agree with the flavor's labels.

    As in Kueue, only keys that the flavor has count. The others are for the pod scheduler.
    """
    labels = flavor.node_labels
    if any(labels.get(key, value) != value for key, value in pod_set.node_selector.items()):
        return False
    terms = pod_set.node_selector_terms
    return not terms or any(_term_matches(term, labels) for term in terms)


def _term_matches(term: Object, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    return all(_expression_matches(expression, labels) for expression in expressions if expression["key"] in labels)


def _expression_matches(expression: Object, labels: Mapping[str, str]) -> bool:
    value: str | None = labels.get(expression["key"])
    values: list[str] = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = parse_int64(value or ""), parse_int64(values[0] if values else "")
    if number is None or bound is None:
        return False
    return number > bound if expression["operator"] == "Gt" else number < bound
