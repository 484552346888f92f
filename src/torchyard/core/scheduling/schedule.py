"""Choosing nodes: one pod at a time, or a gang whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.core.scheduling import filters
from torchyard.core.scheduling.hints import hint
from torchyard.core.scheduling.node_info import NodeInfo, requests

GANG_NAME, GANG_SIZE = "torchyard.dev/gang", "torchyard.dev/gang-size"
# what Kubernetes' own gang plugins write; minMember is then taken from the number of pods with the name
_GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Why nothing was placed: the scheduler's sentence, and what would change it."""

    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


def _nothing(_pod: Object, _node: NodeInfo) -> str:
    return ""


def schedule_pod(
    pod: Object, nodes: list[NodeInfo], *, blocked: str = "", unreachable: Callable[[Object, NodeInfo], str] = _nothing
) -> str | Unschedulable:
    """The best node's name. `blocked` is a reason that holds whatever the node: an unbound claim, say; `unreachable`
    says why the pod's volumes cannot be had on a node."""
    if not nodes:
        remedy = "A plane makes its node when it starts: yard down, then yard up without --no-node."
        return Unschedulable("no nodes available to schedule pods.", remedy)
    if blocked:
        return Unschedulable(
            _sentence(Counter({blocked: len(nodes)}), len(nodes), helped=0), hint(pod, nodes, [blocked])
        )
    counted: Counter[str] = Counter()
    candidates = []
    helped = 0  # nodes where it would fit if others went
    for view in nodes:
        said = filters.filter_reasons(pod, view, nodes)
        if not said and (why := unreachable(pod, view)):
            said = [why]
        counted.update(said)
        helped += _would_preemption_help(pod, view, said)
        if not said:
            candidates.append(view)
    if not candidates:
        return Unschedulable(_sentence(counted, len(nodes), helped=helped), hint(pod, nodes, list(counted)))
    return max(candidates, key=lambda view: (_preference(pod, view), _room(pod, view), view.name)).name


def _never_fits(pod: Object, view: NodeInfo) -> bool:
    whole = view.allocatable
    return any(amount > whole.get(name, 0) for name, amount in requests(pod).items())


def _would_preemption_help(pod: Object, view: NodeInfo, said: list[str]) -> bool:
    """Upstream's Unschedulable, as against UnschedulableAndUnresolvable."""
    if any(reason.startswith(("Insufficient", "Too many pods")) for reason in said):
        return not _never_fits(pod, view)
    return any("free ports" in reason or "anti-affinity" in reason for reason in said)


def _sentence(counted: Counter[str], total: int, *, helped: int) -> str:
    """As kube-scheduler 1.34 puts it, dynamic resources and all."""
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    victims = {"No preemption victims found for incoming pod": helped}
    victims["Preemption is not helpful for scheduling"] = total - helped
    why = ", ".join(f"{count} {words}" for words, count in victims.items() if count)
    said = f"0/{total} nodes are available: {listed}."
    return f"{said} no new claims to deallocate, preemption: 0/{total} nodes are available: {why}."


def _preference(pod: Object, view: NodeInfo) -> int:
    wanted = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    return sum(int(one["weight"]) for one in wanted or () if filters.matches_term(view, one["preference"]))


def _room(pod: Object, view: NodeInfo) -> float:
    """The emptier node, as upstream's LeastAllocated scores it: the mean free share after the pod is there."""
    asked, whole, free = requests(pod), view.allocatable, view.free()
    shares = [(free[name] - asked.get(name, 0)) / whole[name] for name in ("cpu", "memory") if whole.get(name)]
    return sum(shares) / len(shares) if shares else 0.0


def gang_of(pod: Object) -> tuple[str, str] | None:
    """(namespace, name) of the gang a pod belongs to."""
    metadata = pod["metadata"]
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for key in (GANG_NAME, *_GANG_LABELS):
        if marks.get(key):
            return metadata.get("namespace", ""), marks[key]
    return None


def gang_size(pods: list[Object]) -> int:
    """How many pods make the gang whole: the size they state, or as many as there are."""
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
    unreachable: Callable[[Object, NodeInfo], str] = _nothing,
) -> dict[str, str] | Unschedulable:
    """A node for every pod of a gang (by uid), or the reason why the whole gang waits."""
    missing = size - placed - len(pods)
    if missing > 0:
        there = placed + len(pods)
        return Unschedulable(f"gang has {there} of {size} pods.", f"It starts when {missing} more are created.")
    trial = [view.copy() for view in nodes]
    chosen: dict[str, str] = {}
    for pod in sorted(pods, key=lambda one: (-sum(requests(one).values()), one["metadata"]["name"])):
        answer = schedule_pod(pod, trial, unreachable=unreachable)
        if isinstance(answer, Unschedulable):
            fits = len(chosen) + placed
            return Unschedulable(f"gang of {size} fits only {fits} at once: {answer.message}", answer.hint)
        next(view for view in trial if view.name == answer).assume(pod)
        chosen[pod["metadata"]["uid"]] = answer
    return chosen
