"""waitForPodsReady: time limits, back-off, the requeuing limit and reactivation. These need a configuration.

What happens depends on time, so the history of each workload is compared: the values that each condition had, one after
another, however many of them a server writes at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.kueue.harness import Object, Observation, Scenario, condition, cpu_group, pod_set, scenario_of

CONFIGURATION = {
    "waitForPodsReady": {
        "timeout": "3s",
        "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffMaxSeconds": 2, "backoffLimitCount": 2},
    }
}
_LIMIT = 90.0
_POLL = 0.05


class HistoryScenario(Scenario):
    """Follows workloads until a condition holds for the last one, and releases the quota of evicted ones."""

    def follow(
        self, *names: str, until: Callable[[Object], bool], ready: Callable[[Object], None] | None = None
    ) -> None:
        """`ready`: called with each version of the workloads, to report about their pods."""
        histories: dict[str, Observation] = {name: {} for name in names}
        deadline = time.monotonic() + _LIMIT
        while True:
            objects = {name: self.get("Workload", name, "ns") or {} for name in names}
            for name, obj in objects.items():
                _extend(histories[name], obj)
                if ready is not None:
                    ready(obj)
            if until(objects[names[-1]]):
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.prefix}: {objects[names[-1]].get('status')}")
            self._finish_evictions()
            time.sleep(_POLL)
        self.results.append(json.loads(self.plain(json.dumps(histories))))


def _extend(history: Observation, obj: Object) -> None:
    """Add what is new in a version of a workload."""
    status = obj.get("status") or {}
    values = {
        entry["type"]: [entry["status"], entry["reason"], entry["message"]]
        for entry in status.get("conditions") or ()
        if entry["type"] not in ("PodsReady", "QuotaReserved", "Admitted", "DeactivationTarget")
    }
    values["active"] = (obj.get("spec") or {}).get("active", True)
    values["requeues"] = (status.get("requeueState") or {}).get("count", 0)
    values["evictions"] = [
        [entry["reason"], entry["underlyingCause"], entry["count"]]
        for entry in (status.get("schedulingStats") or {}).get("evictions") or ()
    ]
    for name, value in values.items():
        known = history.setdefault(name, [])
        if not known or known[-1] != value:
            known.append(value)


def _is(obj: Object, type: str, status: str = "True") -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == type and entry["status"] == status for entry in conditions)


def _evictions(obj: Object) -> int:
    stats = (obj.get("status") or {}).get("schedulingStats") or {}
    return sum(entry["count"] for entry in stats.get("evictions") or ())


def _is_deactivated(obj: Object) -> bool:
    """And nothing more happens to it."""
    is_released = _is(obj, "QuotaReserved", "False")
    return obj["spec"].get("active", True) is False and _is(obj, "Evicted") and is_released


def _waited(obj: Object) -> bool:
    """Whether its back-off is over."""
    state = (obj.get("status") or {}).get("requeueState") or {}
    return bool(state.get("count")) and not state.get("requeueAt")


def _base(s: Scenario, cpus: int = 1) -> None:
    s.namespace()
    s.flavor("f")
    s.cluster_queue("q", cpu_group(cpus))


def _owner(name: str) -> Object:
    """An owner that no controller knows: a workload without one releases its quota by itself."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"0000-{name}", "controller": True}
    return {"ownerReferences": [owner]}


class _Reporter:
    """Reports, once for each admission, what the pods of a workload do."""

    def __init__(self, s: Scenario, *reports: tuple[str, str]) -> None:
        self._scenario, self._reports, self._reported = s, reports, ""

    def __call__(self, obj: Object) -> None:
        conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions") or ()}
        if not _is(obj, "Admitted") or _is(obj, "Evicted"):
            return
        admitted = conditions["Admitted"]["lastTransitionTime"]
        if admitted == self._reported:
            return
        self._reported = admitted
        for status, reason in self._reports:
            self._scenario.set_conditions(
                obj["metadata"]["name"], "ns", condition("PodsReady", status, reason, "By test")
            )


@scenario_of(HistoryScenario)
def pods_that_nobody_reports_time_out(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q", metadata=_owner("w"))
    s.follow("w", until=_is_deactivated)


@scenario_of(HistoryScenario)
def pods_that_do_not_start_time_out(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q", metadata=_owner("w"))
    s.follow("w", until=_is_deactivated, ready=_Reporter(s, ("False", "WaitForStart")))


@scenario_of(HistoryScenario)
def workload_without_owner_times_out(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q")
    s.follow("w", until=_is_deactivated)


@scenario_of(HistoryScenario)
def pods_that_do_not_recover_time_out(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q", metadata=_owner("w"))
    ready = _Reporter(s, ("True", "Started"), ("False", "WaitForRecovery"))
    s.follow("w", until=lambda obj: _evictions(obj) == 1 and _is(obj, "QuotaReserved", "False"), ready=ready)


@scenario_of(HistoryScenario)
def ready_pods_do_not_time_out(s: HistoryScenario) -> None:
    _base(s, cpus=2)
    s.workload("w", "q", metadata=_owner("w"))
    ready = _Reporter(s, ("True", "Started"))
    s.follow("w", until=lambda obj: _is(obj, "PodsReady"), ready=ready)
    s.workload("other", "q", metadata=_owner("other"))
    s.follow("w", "other", until=lambda obj: _evictions(obj) == 2)


@scenario_of(HistoryScenario)
def next_workload_gets_the_quota_during_the_backoff(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w0", "q", metadata=_owner("w0"))
    s.workload("w1", "q", metadata=_owner("w1"))
    ready = _Reporter(s, ("True", "Started"))
    s.follow("w0", "w1", until=lambda obj: _is(obj, "Admitted"))
    s.follow("w1", until=lambda obj: _is(obj, "PodsReady"), ready=ready)
    s.follow("w1", "w0", until=_waited)
    s.observe()


@scenario_of(HistoryScenario)
def reactivated_workload_starts_over(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q", metadata=_owner("w"))
    s.follow("w", until=_is_deactivated)
    s.patch("Workload", "w", {"spec": {"active": True}}, namespace="ns")
    s.follow("w", until=lambda obj: _is(obj, "PodsReady"), ready=_Reporter(s, ("True", "Started")))
    s.results.pop()  # it may start before it is looked at
    s.observe()


@scenario_of(HistoryScenario)
def execution_time_ends_a_workload(s: HistoryScenario) -> None:
    _base(s)
    s.workload("w", "q", pod_set(cpu=1), metadata=_owner("w"), maximumExecutionTimeSeconds=2)
    s.follow("w", until=_is_deactivated, ready=_Reporter(s, ("True", "Started")))
