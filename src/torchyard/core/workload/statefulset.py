"""What to do about a StatefulSet: which pods to create, delete and update in this pass, and its status.

OrderedReady takes one step at a time: it creates a pod when all before it are available, and deletes the last one when
all others are. Parallel does not wait. A rolling update deletes the last pod with another revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended, phase
from torchyard.core.workload.pods import earliest, is_available, seconds_until_available
from torchyard.core.workload.revisions import with_template_of
from torchyard.core.workload.statefulset_pods import (
    is_created,
    is_healthy,
    is_running_and_ready,
    keeps_invariants,
    make_pod,
    ordinal,
    ordinals,
    revision_of,
    start_ordinal,
)

# The most pods that one pass creates or deletes.
BURST = 500
_Process = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class StatefulSetView:
    stateful_set: Object
    pods: tuple[Object, ...]  # that it controls
    current: Object  # the ControllerRevision of pods below the partition
    update: Object  # the ControllerRevision of the present template
    collisions: int
    now: datetime

    @property
    def spec(self) -> Object:
        spec: Object = self.stateful_set["spec"]
        return spec

    @property
    def min_ready_seconds(self) -> int:
        return int(self.spec.get("minReadySeconds") or 0)


@dataclass(slots=True)
class StatefulSetDecision:
    """In the order in which it is applied."""

    create: list[Object] = field(default_factory=list)  # pods; their claims are created before them
    claims_of: list[Object] = field(default_factory=list)  # pending pods whose missing claims are created
    update: list[Object] = field(default_factory=list)  # pods that have lost their labels
    retain: list[Object] = field(default_factory=list)  # pods whose claims get the owners that the policy wants
    delete: list[Object] = field(default_factory=list)  # pods
    status: Object = field(default_factory=dict)
    wake_after: float | None = None  # seconds


def choose_current(stateful_set: Object, revisions: Iterable[Object], update: Object) -> Object:
    """The revision that the status names; at first, and after it was deleted, the update revision."""
    named = (stateful_set.get("status") or {}).get("currentRevision")
    return next((revision for revision in revisions if revision["metadata"]["name"] == named), update)


def decide(view: StatefulSetView) -> StatefulSetDecision:
    sync = _StatefulSetSync(view)
    sync.run()
    sync.finish()
    return sync.decision


class _StatefulSetSync:
    """One pass over one StatefulSet."""

    def __init__(self, view: StatefulSetView) -> None:
        self.view, self.decision = view, StatefulSetDecision()
        self.is_monotonic = view.spec.get("podManagementPolicy") != "Parallel"
        wanted = ordinals(view.stateful_set)
        present = {ordinal(pod): pod for pod in view.pods}
        self.is_partial = False
        self.replicas = self._replicas(wanted, present)
        surplus = [pod for pod in view.pods if ordinal(pod) not in wanted and ordinal(pod) >= 0]
        self.condemned = sorted(surplus, key=ordinal, reverse=True)
        candidates = [*self.replicas, *reversed(self.condemned)]
        self.first_unhealthy = next((pod for pod in candidates if not is_healthy(pod)), None)
        self.deleted_for_update: Object | None = None

    def _replicas(self, wanted: range, present: dict[int, Object]) -> list[Object]:
        """The pods of all ordinals, those that do not exist included; of these only as many as one pass creates."""
        replicas, missing = [], 0
        for number in wanted:
            missing += number not in present
            if missing > BURST:
                self.is_partial = True
                break
            replicas.append(present.get(number) or self._make(number))
        return replicas

    def _make(self, number: int) -> Object:
        view, revision = self.view, self.view.update
        if self._needs_current(number):
            revision = view.current
        return make_pod(with_template_of(view.stateful_set, revision), number, revision["metadata"]["name"])

    def _needs_current(self, number: int) -> bool:
        strategy = self.view.spec["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return False
        rolling = strategy.get("rollingUpdate")
        status = self.view.stateful_set.get("status") or {}
        old_pods = (status.get("currentReplicas") or 0) if rolling is None else (rolling.get("partition") or 0)
        return number < start_ordinal(self.view.stateful_set) + old_pods

    def run(self) -> None:
        if is_terminating(self.view.stateful_set):
            return
        if self._for_all(self.replicas, self._process_replica) or self.is_partial:
            return
        self.decision.retain += self.condemned
        if self._for_all(self.condemned, self._process_condemned):
            return
        if self.view.spec["updateStrategy"]["type"] == "RollingUpdate":
            self._roll()

    def _for_all(self, pods: list[Object], process: _Process) -> bool:
        """Whether the pass ends here. In order, the first that says so ends it; in parallel, all get their turn."""
        ends = False
        for pod in pods:
            if len(self.decision.create) + len(self.decision.delete) >= BURST:
                return True
            ends = process(pod) or ends
            if ends and self.is_monotonic:
                return True
        return ends

    def _process_replica(self, pod: Object) -> bool:
        decision, view = self.decision, self.view
        if has_ended(pod):
            # Whatever its exit code: an evicted pod may have succeeded. The next one has the same name.
            if not is_terminating(pod):
                decision.delete.append(pod)
            return True
        if not is_created(pod):
            decision.create.append(pod)
            return self.is_monotonic
        if phase(pod) == "Pending":
            decision.claims_of.append(pod)
        if self.is_monotonic and (is_terminating(pod) or not self._is_available(pod)):
            return True
        decision.retain.append(pod)
        if not keeps_invariants(view.stateful_set, pod):
            decision.update.append(pod)
        return False

    def _process_condemned(self, pod: Object) -> bool:
        if is_terminating(pod):
            return self.is_monotonic
        if self.is_monotonic and not self._is_available(pod) and pod is not self.first_unhealthy:
            return True
        self.decision.delete.append(pod)
        return True

    def _is_available(self, pod: Object) -> bool:
        return is_running_and_ready(pod) and is_available(pod, self.view.min_ready_seconds, self.view.now)

    def _roll(self) -> None:
        rolling = self.view.spec["updateStrategy"].get("rollingUpdate") or {}
        for pod in reversed(self.replicas[rolling.get("partition") or 0 :]):
            if revision_of(pod) != self.view.update["metadata"]["name"] and not is_terminating(pod):
                self.decision.delete.append(pod)
                self.deleted_for_update = pod
                return
            if not is_healthy(pod):
                return

    def finish(self) -> None:
        view = self.view
        pods = [*self.replicas, *self.condemned]
        waits = (seconds_until_available(pod, view.min_ready_seconds, view.now) for pod in pods)
        self.decision.wake_after = earliest(*waits)
        self.decision.status = self._status(pods)

    def _status(self, pods: list[Object]) -> Object:
        view = self.view
        current, update = view.current["metadata"]["name"], view.update["metadata"]["name"]
        ready = [pod for pod in pods if is_running_and_ready(pod)]
        living = [pod for pod in pods if is_created(pod) and not is_terminating(pod)]
        counts = {
            "replicas": sum(map(is_created, pods)),
            "readyReplicas": len(ready),
            "availableReplicas": sum(map(self._is_available, ready)),
            "currentReplicas": sum(revision_of(pod) == current for pod in living),
            "updatedReplicas": sum(revision_of(pod) == update for pod in living),
        }
        if self.deleted_for_update is not None and revision_of(self.deleted_for_update) == current:
            counts["currentReplicas"] -= 1
        wanted = view.spec["replicas"]
        done = all(counts[name] == wanted for name in ("updatedReplicas", "readyReplicas", "replicas"))
        if done and view.spec["updateStrategy"]["type"] == "RollingUpdate":
            counts["currentReplicas"], current = counts["updatedReplicas"], update
        status: Object = {
            "observedGeneration": view.stateful_set["metadata"].get("generation", 0),
            "replicas": counts["replicas"],
            "availableReplicas": counts["availableReplicas"],
            **{name: count for name, count in counts.items() if count},
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": view.collisions,
        }
        kept_conditions = (view.stateful_set.get("status") or {}).get("conditions")
        return {**status, "conditions": kept_conditions} if kept_conditions else status
