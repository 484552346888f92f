"""What to do about a DaemonSet: which nodes get a pod, which pods go, and its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended, is_ready, phase
from torchyard.api.workload import labels, messages
from torchyard.core.events import Event
from torchyard.core.workload.daemonset_nodes import Placement, by_node, place, template_generation
from torchyard.core.workload.deployment_view import scaled_value
from torchyard.core.workload.pods import earliest, is_available, seconds_until_available

# The most pods that one pass creates or deletes.
BURST = 250


@dataclass(frozen=True, slots=True)
class DaemonSetView:
    daemon_set: Object
    pods: tuple[Object, ...]  # that it controls
    nodes: tuple[Object, ...]
    hash: str  # of the present revision
    collisions: int | None
    now: datetime
    # The seconds for which a failed pod on a node is not replaced yet.
    backoff: Callable[[str], float] = lambda _node: 0.0

    @property
    def spec(self) -> Object:
        spec: Object = self.daemon_set["spec"]
        return spec

    @property
    def min_ready_seconds(self) -> int:
        return int(self.spec.get("minReadySeconds") or 0)

    def is_updated(self, pod: Object) -> bool:
        own = pod["metadata"].get("labels") or {}
        generation = own.get(labels.TEMPLATE_GENERATION) == template_generation(self.daemon_set)
        return generation or own.get(labels.CONTROLLER_REVISION_HASH) == self.hash

    def is_available(self, pod: Object) -> bool:
        return is_available(pod, self.min_ready_seconds, self.now)

    def rolling(self, name: str, total: int) -> int:
        rolling = self.spec["updateStrategy"].get("rollingUpdate") or {}
        return scaled_value(rolling.get(name) or 0, total, round_up=True)

    @property
    def is_rolling(self) -> bool:
        return bool(self.spec["updateStrategy"]["type"] == "RollingUpdate")


@dataclass(slots=True)
class DaemonSetDecision:
    create: list[str] = field(default_factory=list)  # the names of nodes
    delete: list[Object] = field(default_factory=list)  # pods
    failed_on: list[str] = field(default_factory=list)  # nodes whose failed pod is replaced
    events: list[Event] = field(default_factory=list)
    status: Object = field(default_factory=dict)
    wake_after: float | None = None  # seconds


def decide(view: DaemonSetView) -> DaemonSetDecision:
    sync = _DaemonSetSync(view)
    if not any((view.spec.get("selector") or {}).values()):
        text = messages.selects_everything("daemon set")
        sync.decision.events.append(Event("Warning", messages.SELECTING_ALL, text))
        sync.decision.status = view.daemon_set.get("status") or {}
        return sync.decision
    if not is_terminating(view.daemon_set):
        sync.run()
    sync.finish()
    return sync.decision


class _DaemonSetSync:
    """One pass over one DaemonSet."""

    def __init__(self, view: DaemonSetView) -> None:
        self.view, self.decision = view, DaemonSetDecision()
        self.pods = by_node(view.pods)
        self.places: dict[str, Placement] = {
            node["metadata"]["name"]: place(view.daemon_set, node) for node in view.nodes
        }

    def run(self) -> None:
        for node, placement in self.places.items():
            self._sync_node(node, placement)
        for node, pods in self.pods.items():
            # Pods for a node that is gone would wait for ever; those that are bound are the garbage collector's.
            if node not in self.places:
                self._delete(pod for pod in pods if not pod["spec"].get("nodeName"))
        # As in upstream, a pass that creates or deletes is not followed by an update before its effects are seen.
        if self.view.is_rolling and not self.decision.create and not self.decision.delete:
            self._roll()
        self.decision.create = self.decision.create[:BURST]
        self.decision.delete = self.decision.delete[:BURST]

    def _delete(self, pods: Iterable[Object]) -> None:
        self.decision.delete += [pod for pod in pods if not is_terminating(pod)]

    def _sync_node(self, node: str, placement: Placement) -> None:
        pods = self.pods.get(node) or []
        if placement.should_run and not pods:
            self.decision.create.append(node)
        elif not placement.may_stay:
            self._delete(pods)
        else:
            running = self._without_ended(node, pods)
            self._delete(self._excess(running))

    def _without_ended(self, node: str, pods: list[Object]) -> list[Object]:
        """The pods that run. Ended ones are deleted; failed ones after a back-off, because a node may refuse them."""
        running = []
        for pod in pods:
            if is_terminating(pod):
                continue
            if not has_ended(pod):
                running.append(pod)
                continue
            metadata = pod["metadata"]
            if phase(pod) == "Succeeded":
                text = messages.succeeded_daemon_pod(metadata["namespace"], metadata["name"], node)
                self.decision.events.append(Event("Normal", messages.SUCCEEDED_DAEMON_POD, text))
            else:
                wait = self.view.backoff(node)
                if wait > 0:
                    self._wake(wait)
                    continue
                self.decision.failed_on.append(node)
                text = messages.failed_daemon_pod(metadata["namespace"], metadata["name"], node)
                self.decision.events.append(Event("Warning", messages.FAILED_DAEMON_POD, text))
            self.decision.delete.append(pod)
        return running

    def _wake(self, seconds: float) -> None:
        self.decision.wake_after = earliest(self.decision.wake_after, seconds)

    def _excess(self, running: list[Object]) -> list[Object]:
        """All but the oldest pod of a node; with maxSurge, a new pod runs beside an old one until it is available."""
        if len(running) <= 1:
            return []
        if not self.view.is_rolling or not self.view.rolling("maxSurge", len(self.places)):
            return running[1:]
        new = [pod for pod in running if _hash(pod) == self.view.hash]
        old = [pod for pod in running if _hash(pod) != self.view.hash]
        excess = [*new[1:], *old[1:]]
        if new and old and (not is_ready(old[0]) or self.view.is_available(new[0])):
            excess.append(old[0])
        return excess

    def _roll(self) -> None:
        nodes = {name for name, placement in self.places.items() if placement.should_run}
        surge = self.view.rolling("maxSurge", len(nodes))
        unavailable = self.view.rolling("maxUnavailable", len(nodes))
        pods = {name: self._live(name) for name in sorted(nodes | self.pods.keys())}
        if surge:
            self._surge(pods, surge)
        else:
            self._replace(pods, unavailable or 1)

    def _live(self, node: str) -> list[Object]:
        return [pod for pod in self.pods.get(node) or () if not is_terminating(pod)]

    def _split(self, pods: list[Object]) -> tuple[Object | None, Object | None, bool]:
        """The new and the old pod of a node, and whether there is at most one of each."""
        new = [pod for pod in pods if self.view.is_updated(pod)]
        old = [pod for pod in pods if not self.view.is_updated(pod)]
        is_clear = len(new) <= 1 and len(old) <= 1
        return (new[0] if new else None), (old[0] if old else None), is_clear

    def _replace(self, pods: dict[str, list[Object]], limit: int) -> None:
        """Delete old pods, unavailable ones first, as long as no more nodes than the limit are without one."""
        missing = 0
        replaced: list[Object] = []
        candidates: list[Object] = []
        for node_pods in pods.values():
            new, old, is_clear = self._split(node_pods)
            if not is_clear or (new is None) == (old is None):
                missing += 1
            elif new is not None:
                missing += not self.view.is_available(new)
            elif old is not None and not self.view.is_available(old):
                replaced.append(old)
                missing += 1
            elif old is not None:
                candidates.append(old)
        self._delete([*replaced, *candidates[: max(limit - missing, 0)]])

    def _surge(self, pods: dict[str, list[Object]], limit: int) -> None:
        """Create new pods beside old ones, and delete an old one when the new one is available."""
        surging = 0
        allowed: list[str] = []  # the pod there is not available anyway
        candidates: list[str] = []
        for node, node_pods in pods.items():
            new, old, is_clear = self._split(node_pods)
            if not is_clear:
                surging += 1
            elif old is None:
                continue
            elif new is None:
                (candidates if self.view.is_available(old) else allowed).append(node)
            elif self.view.is_available(new):
                self._delete([old])
            else:
                surging += 1
        self.decision.create += [*allowed, *candidates[: max(limit - surging, 0)]]

    def finish(self) -> None:
        view, counts = self.view, dict.fromkeys(("desired", "current", "missed", "ready", "available", "updated"), 0)
        for node, placement in self.places.items():
            pods = [pod for pod in self.pods.get(node) or () if not (has_ended(pod) and is_terminating(pod))]
            if not placement.should_run:
                counts["missed"] += bool(pods)
                continue
            counts["desired"] += 1
            if pods:
                counts["current"] += 1
                counts["ready"] += is_ready(pods[0])
                counts["available"] += view.is_available(pods[0])
                counts["updated"] += view.is_updated(pods[0])
                self._wake_when_available(pods[0])
        self.decision.status = self._status(counts)

    def _wake_when_available(self, pod: Object) -> None:
        wait = seconds_until_available(pod, self.view.min_ready_seconds, self.view.now)
        if wait is not None:
            self._wake(wait)

    def _status(self, counts: dict[str, int]) -> Object:
        daemon_set = self.view.daemon_set
        optional = {
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": counts["desired"] - counts["available"],
        }
        status: Object = {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["missed"],
            "desiredNumberScheduled": counts["desired"],
            "numberReady": counts["ready"],
            **{name: number for name, number in optional.items() if number},
        }
        if self.view.collisions is not None:
            status["collisionCount"] = self.view.collisions
        own_conditions = (daemon_set.get("status") or {}).get("conditions")
        return {**status, "conditions": own_conditions} if own_conditions else status


def _hash(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(labels.CONTROLLER_REVISION_HASH, ""))
