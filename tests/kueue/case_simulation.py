"""Runs a random case on the scheduler of `core.queue` alone, without a server and with its own clock.

Where the order of workloads is a matter of chance in Kueue (reservations of the same second, then uids), the simulation
takes the times and the order of a recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tests.kueue.case_server import Recording
from tests.kueue.case_states import States, changes, holds_evicted_quota, is_deactivated, queue_state, workload_state
from tests.kueue.random_cases import Case, Operation

from torchyard.apiserver.patch.merge_patch import apply_merge_patch
from torchyard.core.queue import lifecycle
from torchyard.core.queue.decisions import Admit, Preempt, SchedulingDecision, SchedulingFailure
from torchyard.core.queue.pod_defaults import PodDefaults
from torchyard.core.queue.queue_status import cluster_queue_status
from torchyard.core.queue.scheduler import schedule
from torchyard.core.queue.settings import FairSharing, QueueSettings
from torchyard.core.queue.state import QueueState

Object = dict[str, Any]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_SETTINGS = QueueSettings(pods_ready=False)
_MAX_CYCLES = 400


def simulate(case: Case, recording: Recording | None = None) -> list[tuple[str, States]]:
    """What was done, and what had changed when nothing was left to do."""
    return _Simulation(case, recording or Recording()).run()


class _Simulation:
    def __init__(self, case: Case, recording: Recording) -> None:
        self._case, self._recording = case, recording
        self._ranks = {name: rank for rank, name in enumerate(recording.uids)}
        self._state = QueueState(
            lambda _namespace: {}, fair_sharing=None if case.fair_sharing is None else FairSharing(case.fair_sharing)
        )
        self._objects: dict[tuple[str, str], Object] = {}
        self._created: list[str] = []
        self._versions = 0
        self._now = _START
        self._points: list[tuple[str, States]] = []
        self._last: States = {}

    def run(self) -> list[tuple[str, States]]:
        for operation in self._case.setup:
            self._apply(operation)
        self._settle("setup")
        for number, operation in enumerate(self._case.steps):
            self._now += timedelta(seconds=2)
            self._apply(operation)
            self._settle(operation.verb)
            while (evicted := self._evicted()) is not None and not self._has_all_points():
                if number in self._case.late and not is_deactivated(self._objects["Workload", evicted]):
                    break
                self._release(evicted)
        self._settle("end")
        return self._points

    def _has_all_points(self) -> bool:
        """Whether a recording ended early because Kueue does not stop to preempt."""
        return self._recording.is_restless and len(self._points) >= len(self._recording.points)

    def _release(self, name: str) -> None:
        self._now += timedelta(seconds=2)
        obj = self._objects["Workload", name]
        status = lifecycle.release_quota(obj, self._now.timestamp(), requeue=not is_deactivated(obj))
        self._write_status(name, status)
        self._settle(f"release {name.removeprefix(self._case.prefix)}")

    # Objects.

    def _apply(self, operation: Operation) -> None:
        key = operation.kind, operation.name
        match operation.verb:
            case "create":
                self._objects[key] = self._new(operation.body)
                if operation.kind == "Workload":
                    self._created.append(operation.name)
            case "patch" | "patch-status":
                self._objects[key] = apply_merge_patch(self._objects[key], operation.body)
            case "finish":
                status = lifecycle.finish(self._objects[key], "JobFinished", "By test", self._now.timestamp())
                self._objects[key] = {**self._objects[key], "status": status}
            case "delete":
                del self._objects[key]
                self._state.remove_workload((self._case.namespace, operation.name))
                return
        self._put(operation.kind, operation.name)

    def _new(self, body: Object) -> Object:
        timestamp = self._now.isoformat()
        name = body["metadata"]["name"]
        return {**body, "metadata": {**body["metadata"], "uid": f"uid-{name}", "creationTimestamp": timestamp}}

    def _put(self, kind: str, name: str) -> None:
        obj = self._objects[kind, name]
        match kind:
            case "ResourceFlavor":
                self._state.objects.put_flavor(obj)
            case "Cohort":
                self._state.objects.put_cohort(obj)
            case "ClusterQueue":
                self._state.objects.put_cluster_queue(obj)
            case "LocalQueue":
                self._state.put_local_queue(obj)
            case "LimitRange" | "RuntimeClass":
                limit_ranges, runtime_classes = (self._of_kind(kind) for kind in ("LimitRange", "RuntimeClass"))
                self._state.set_pod_defaults(self._case.namespace, PodDefaults.of(limit_ranges, runtime_classes))
            case "Workload":
                self._versions += 1
                metadata = {**obj["metadata"], "resourceVersion": str(self._versions)}
                self._objects[kind, name] = obj = {**obj, "metadata": metadata}
                self._state.put_workload(obj)

    def _of_kind(self, kind: str) -> list[Object]:
        return [obj for (other, _), obj in self._objects.items() if other == kind]

    def _write_status(self, name: str, status: Object) -> None:
        obj = self._objects["Workload", name]
        self._objects["Workload", name] = {**obj, "status": {key: part for key, part in status.items() if part}}
        self._put("Workload", name)

    def _workloads(self) -> Mapping[str, Object]:
        return {name: self._objects["Workload", name] for name in self._created if ("Workload", name) in self._objects}

    def _evicted(self) -> str | None:
        return next((name for name, obj in self._workloads().items() if holds_evicted_quota(obj)), None)

    # Cycles.

    def _settle(self, label: str) -> None:
        for _ in range(_MAX_CYCLES):
            decisions = schedule(self._state, self._now.timestamp())
            for decision in decisions:
                self._write(decision)
            has_changed = self._evaluate_workloads()
            if not decisions and not has_changed and not self._state.pending.active:
                break
        else:
            raise AssertionError(f"seed {self._case.seed} does not become quiet after {label}")
        evicted = self._evicted()
        if evicted is not None and is_deactivated(self._objects["Workload", evicted]):
            return
        states = self._observe(with_queues=label == "end")
        self._points.append((label, changes(self._last, states)))
        self._last = states

    def _write(self, decision: SchedulingDecision) -> None:
        now = self._now.timestamp()
        match decision:
            case SchedulingFailure(_, error):
                raise error
            case Admit(info, cluster_queue, assignment):
                name = info.key[1]
                spec = self._state.cache.cluster_queues[cluster_queue].spec
                status = lifecycle.reserve_quota(self._objects["Workload", name], spec, assignment, now)
                self._set_reservation_time(name, status)
                self._write_status(name, status)
            case Preempt(_, _, targets):
                for target in targets:
                    obj = self._objects["Workload", target.info.key[1]]
                    status = lifecycle.evict(obj, "Preempted", "By test", now, preempted=target.reason)
                    self._write_status(target.info.key[1], status)

    def _set_reservation_time(self, name: str, status: Object) -> None:
        """That of the recording, and within a second in the order of the uids: the first one is the newest."""
        short = name.removeprefix(self._case.prefix)
        recorded = self._recording.reserved.get(short, {}).get(len(self._points))
        timestamp = _START + timedelta(seconds=recorded) if recorded is not None else self._now
        order = timedelta(microseconds=len(self._ranks) - self._ranks.get(short, 0))
        for entry in status["conditions"]:
            if entry["type"] == "QuotaReserved":
                entry["lastTransitionTime"] = (timestamp + order).isoformat()

    def _evaluate_workloads(self) -> bool:
        """Do what the controller of workloads does: evict those of stopped queues and those that are not active."""
        has_changed = False
        for name, obj in self._workloads().items():
            outcome = lifecycle.evaluate(
                obj, self._now.timestamp(), _SETTINGS, stops=partial(self._stops, obj), has_owner=True
            )
            if outcome.status is not None:
                self._write_status(name, outcome.status)
                has_changed = True
        return has_changed

    def _stops(self, obj: Object) -> dict[str, str]:
        queues = {
            "ClusterQueue": obj["status"]["admission"]["clusterQueue"],
            "LocalQueue": obj["spec"]["queueName"],
        }
        policies = {kind: self._objects[kind, name]["spec"].get("stopPolicy", "None") for kind, name in queues.items()}
        return {kind: policy for kind, policy in policies.items() if policy != "None"}

    def _observe(self, *, with_queues: bool) -> States:
        prefix, workloads = self._case.prefix, self._workloads()
        states = {
            name.removeprefix(prefix): workload_state(workloads[name], prefix) if name in workloads else "gone"
            for name in self._created
        }
        for name, cq in self._state.cache.cluster_queues.items() if with_queues else ():
            states[name.removeprefix(prefix)] = queue_state({"status": cluster_queue_status(cq, "")}, prefix)
        return states
