"""The choice of a node: for one pod at a time, or for a whole gang at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.core.scheduling import filters
from torchyard.core.scheduling.hints import hint
from torchyard.core.scheduling.node_info import NodeInfo, requests

GANG_NAME, GANG_SIZE = "torchyard.dev/gang", "torchyard.dev/gang-size"
# The labels of Kubernetes' gang plugins. The gang's size is then the number of pods with the same label.
_GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why a pod cannot be scheduled: kube-scheduler's message, and a hint."""

    message: str
    hint: str = ""

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
        remedy = "A plane makes its node when it starts: yard down, then yard up without --no-node."
        return Unschedulable("no nodes available to schedule pods.", remedy)
    if pre_filter_reason:
        return Unschedulable(
            _unschedulable_message(Counter({pre_filter_reason: len(nodes)}), len(nodes), preemptable=0),
            hint(pod, nodes, [pre_filter_reason]),
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
            _unschedulable_message(counted, len(nodes), preemptable=preemptable), hint(pod, nodes, list(counted))
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
    if any(reason.startswith(("Insufficient", "Too many pods")) for reason in reasons):
        return not _never_fits(pod, node_info)
    return any("free ports" in reason or "anti-affinity" in reason for reason in reasons)


def _unschedulable_message(counted: Counter[str], total: int, *, preemptable: int) -> str:
    """The message of kube-scheduler 1.34, including its part about dynamic resources."""
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    victims = {"No preemption victims found for incoming pod": preemptable}
    victims["Preemption is not helpful for scheduling"] = total - preemptable
    preemption = ", ".join(f"{count} {reason}" for reason, count in victims.items() if count)
    summary = f"0/{total} nodes are available: {listed}."
    return f"{summary} no new claims to deallocate, preemption: 0/{total} nodes are available: {preemption}."


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
    labels = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for key in (GANG_NAME, *_GANG_LABELS):
        if labels.get(key):
            return metadata.get("namespace", ""), labels[key]
    return None


def gang_size(pods: list[Object]) -> int:
    """The number of pods in a complete gang: the size in their annotations, or the number of existing pods."""
    stated = [
        int(text) for pod in pods if (text := (pod["metadata"].get("annotations") or {}).get(GANG_SIZE, "")).isdigit()
    ]
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
        return Unschedulable(f"gang has {existing} of {size} pods.", f"It starts when {missing} more are created.")
    trial = [node_info.copy() for node_info in nodes]
    chosen: dict[str, str] = {}
    for pod in sorted(pods, key=lambda one: (-sum(requests(one).values()), one["metadata"]["name"])):
        answer = schedule_pod(pod, trial, volume_filter=volume_filter)
        if isinstance(answer, Unschedulable):
            fits = len(chosen) + placed
            return Unschedulable(f"gang of {size} fits only {fits} at once: {answer.message}", answer.hint)
        next(node_info for node_info in trial if node_info.name == answer).assume(pod)
        chosen[pod["metadata"]["uid"]] = answer
    return chosen
