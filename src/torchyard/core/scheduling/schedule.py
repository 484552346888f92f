"""The choice of a node: for one pod at a time, or for a whole gang at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.core.scheduling import filters
from torchyard.core.scheduling.hints import hint
from torchyard.core.scheduling.node_info import NodeInfo, requests

GANG_NAME, GANG_SIZE = "torchyard.dev/gang", "torchyard.dev/gang-size"
# Ours, and the labels of Kubernetes' gang plugins. A gang of theirs is as large as the number of pods with its label.
_GANG_KEYS = (GANG_NAME, "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")

_RESOLVED_BY_PREEMPTION = frozenset((messages.NODE_PORTS, messages.POD_ANTI_AFFINITY, messages.EXISTING_ANTI_AFFINITY))

_SIZE_DIGITS = 10  # of an int32; users write the annotation


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why a pod cannot be scheduled: kube-scheduler's message, and a hint."""

    message: str
    hint: str = ""
    reasons: frozenset[str] = frozenset()  # of the filters that rejected it, for deciding what could help

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


def _no_volume_filter(_pod: Object, _node: NodeInfo) -> str:
    return ""


def schedule_pod(
    pod: Object,
    nodes: list[NodeInfo],
    *,
    pre_filter_reason: str = "",
    volume_filter: Callable[[Object, NodeInfo], str] = _no_volume_filter,
) -> str | Unschedulable:
    """The name of the best node.

    `pre_filter_reason` excludes every node, for example an unbound claim. `volume_filter` says why the pod's volumes
    are not available on a node.
    """
    if not nodes:
        return Unschedulable(messages.NO_NODES, messages.NO_NODES_HINT, frozenset((messages.NO_NODES,)))
    if pre_filter_reason:
        return Unschedulable(
            _unschedulable_message(Counter({pre_filter_reason: len(nodes)}), len(nodes), preemptable=0),
            hint(pod, nodes, [pre_filter_reason]),
            frozenset((pre_filter_reason,)),
        )
    counted: Counter[str] = Counter()
    candidates = []
    preemptable = 0  # nodes where the pod would fit if other pods were preempted
    for node_info in nodes:
        reasons = filters.filter_reasons(pod, node_info, nodes)
        if not reasons and (reason := volume_filter(pod, node_info)):
            reasons = [reason]
        counted.update(reasons)
        preemptable += _is_preemptable(pod, node_info, reasons)
        if not reasons:
            candidates.append(node_info)
    if not candidates:
        return Unschedulable(
            _unschedulable_message(counted, len(nodes), preemptable=preemptable),
            hint(pod, nodes, list(counted)),
            frozenset(counted),
        )
    return max(
        candidates,
        key=lambda node_info: (_preference(pod, node_info), _least_allocated_score(pod, node_info), node_info.name),
    ).name


def _never_fits(pod: Object, node_info: NodeInfo) -> bool:
    allocatable = node_info.allocatable
    return any(amount > allocatable.get(name, 0) for name, amount in requests(pod).items())


def _is_preemptable(pod: Object, node_info: NodeInfo, reasons: list[str]) -> bool:
    """Upstream's Unschedulable, as opposed to UnschedulableAndUnresolvable."""
    if any(messages.insufficient_resource(reason) or reason == messages.TOO_MANY_PODS for reason in reasons):
        return not _never_fits(pod, node_info)
    return not _RESOLVED_BY_PREEMPTION.isdisjoint(reasons)


def _unschedulable_message(counted: Counter[str], total: int, *, preemptable: int) -> str:
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    victims = {messages.NO_VICTIMS: preemptable, messages.PREEMPTION_NOT_HELPFUL: total - preemptable}
    preemption = ", ".join(f"{count} {reason}" for reason, count in victims.items() if count)
    return messages.nodes_unavailable(total, listed, preemption)


def _preference(pod: Object, node_info: NodeInfo) -> int:
    terms = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    return sum(int(term["weight"]) for term in terms or () if filters.matches_term(node_info, term["preference"]))


def _least_allocated_score(pod: Object, node_info: NodeInfo) -> float:
    """Upstream's LeastAllocated score: the mean free share of the node with the pod on it."""
    requested, allocatable, free = requests(pod), node_info.allocatable, node_info.free()
    shares = [
        (free[name] - requested.get(name, 0)) / allocatable[name] for name in ("cpu", "memory") if allocatable.get(name)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def gang_of(pod: Object) -> tuple[str, str] | None:
    """(namespace, name) of the gang a pod belongs to."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for key in _GANG_KEYS:
        if name := annotations.get(key, labels.get(key)):
            return metadata.get("namespace", ""), name
    return None


def gang_size(pods: list[Object]) -> int:
    """The number of pods in a complete gang: the size in their annotations, or the number of existing pods."""
    texts = ((pod["metadata"].get("annotations") or {}).get(GANG_SIZE, "") for pod in pods)
    stated = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= _SIZE_DIGITS]
    return max(stated, default=len(pods))


def schedule_gang(
    pods: list[Object],
    nodes: list[NodeInfo],
    *,
    size: int,
    placed: int = 0,
    volume_filter: Callable[[Object, NodeInfo], str] = _no_volume_filter,
) -> dict[str, str] | Unschedulable:
    """A node for every pod of a gang (by uid), or the reason why the whole gang is pending."""
    missing = size - placed - len(pods)
    if missing > 0:
        existing = placed + len(pods)
        return Unschedulable(messages.gang_incomplete(existing, size), messages.gang_incomplete_hint(missing))
    trial = [node_info.copy() for node_info in nodes]
    chosen: dict[str, str] = {}
    for pod in sorted(pods, key=lambda member: (-sum(requests(member).values()), member["metadata"]["name"])):
        answer = schedule_pod(pod, trial, volume_filter=volume_filter)
        if isinstance(answer, Unschedulable):
            fits = len(chosen) + placed
            return Unschedulable(messages.gang_does_not_fit(size, fits, answer.message), answer.hint, answer.reasons)
        next(node_info for node_info in trial if node_info.name == answer).add(pod)
        chosen[pod["metadata"]["uid"]] = answer
    return chosen
