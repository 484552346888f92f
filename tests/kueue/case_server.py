"""Runs many random cases at the same time on one server, the plane or a real Kubernetes with Kueue.

A case takes its next step when it is quiet: when the server took a workload of a queue beside the cases through all
that a change can cause, and meanwhile nothing of the case changed. So a slow server gets the time it needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.kueue.case_states import (
    States,
    changes,
    holds_evicted_quota,
    is_deactivated,
    queue_state,
    reserved_at,
    workload_state,
)
from tests.kueue.random_cases import Case, Operation
from tests.support.http import Answer, Client

Object = dict[str, Any]

_VERSION = "kueue.x-k8s.io/v1beta2"
_API = f"/apis/{_VERSION}"
_PLURALS = {
    "ClusterQueue": f"{_API}/clusterqueues",
    "Cohort": f"{_API}/cohorts",
    "ResourceFlavor": f"{_API}/resourceflavors",
    "LocalQueue": f"{_API}/namespaces/{{}}/localqueues",
    "Workload": f"{_API}/namespaces/{{}}/workloads",
    "Namespace": "/api/v1/namespaces",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
}
_MAX_ROUNDS = 15  # a case that changes for longer does not become quiet
_MAX_POINTS = 100  # a case in which workloads preempt each other without end
_QUIET_ROUNDS_AT_END = 3
_STEP_SECONDS = 1.05  # times of creations and reservations have whole seconds, and decide the order
_CONFLICT = 409
_POLL = 0.05
_WEBHOOK_FAILED = "failed calling webhook"
_WEBHOOK_SECONDS = 120.0


@dataclass
class Recording:
    """What a server showed. `points`: what was done, and what had changed when it was quiet again."""

    points: list[tuple[str, States]] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)  # workloads in the order of their uids
    reserved: dict[str, dict[int, int]] = field(default_factory=dict)  # seconds of reservations, by workload and point
    is_restless: bool = False
    refused: str = ""


class RunningCase:
    def __init__(self, client: Client, case: Case, quiet_rounds: int) -> None:
        self.case, self.recording, self._quiet_rounds_needed = case, Recording(), quiet_rounds
        self._client = client
        self._steps: Iterator[Operation] = iter(case.steps)
        self._label, self._step = "setup", -1
        self._states: States = {}
        self._last: States = {"": "new"}
        self._workloads: dict[str, Object] = {}
        self._created: list[str] = []
        self._uids: dict[str, str] = {}
        self._started = int(time.time())
        self._rounds = 0
        self._next_step = 0.0
        self._quiet_rounds = 0
        self.is_done = False

    def set_up(self) -> None:
        for operation in self.case.setup:
            self._do(operation)

    def observe(self, workloads: dict[str, Object], queues: dict[str, Object]) -> None:
        """After a round: take the next step if nothing changed in it."""
        prefix = self.case.prefix
        self._workloads = {name: workloads[name] for name in self._created if name in workloads}
        self._uids |= {name: obj["metadata"]["uid"] for name, obj in self._workloads.items()}
        states = {
            name.removeprefix(prefix): workload_state(workloads[name], prefix) if name in workloads else "gone"
            for name in self._created
        }
        if self._label == "end":
            for name in self.case.cluster_queues:
                states[name.removeprefix(prefix)] = queue_state(queues[name], prefix)
        self._quiet_rounds = self._quiet_rounds + 1 if states == self._last else 0
        self._last = states
        self._rounds += 1
        if self._rounds > _MAX_ROUNDS or len(self.recording.points) > _MAX_POINTS:
            self.recording.is_restless = self.is_done = True
        elif time.monotonic() < self._next_step:
            self._rounds = 0
        elif self._quiet_rounds >= (_QUIET_ROUNDS_AT_END if self._label == "end" else self._quiet_rounds_needed):
            self._advance(states)
            self._next_step = time.monotonic() + _STEP_SECONDS
            self._rounds, self._last = 0, {"": "new"}

    def _record(self, states: States) -> None:
        number = len(self.recording.points)
        self.recording.points.append((self._label, changes(self._states, states)))
        for name, obj in self._workloads.items():
            timestamp = reserved_at(obj)
            times = self.recording.reserved.setdefault(name.removeprefix(self.case.prefix), {})
            if timestamp is not None and timestamp - self._started not in times.values():
                times[number] = timestamp - self._started
        self._states = states

    def _advance(self, states: States) -> None:
        evicted = next((name for name, obj in self._workloads.items() if holds_evicted_quota(obj)), None)
        if evicted is None or not is_deactivated(self._workloads[evicted]):
            self._record(states)
            if self._step in self.case.late and self._label != "end":
                evicted = None
        if self._label == "end":
            self.is_done = True
            self.recording.uids = [
                name.removeprefix(self.case.prefix) for name in sorted(self._uids, key=self._uids.__getitem__)
            ]
        elif evicted is not None:
            self._label = f"release {evicted.removeprefix(self.case.prefix)}"
            self._release(evicted)
        elif (operation := next(self._steps, None)) is not None:
            self._label, self._step = operation.verb, self._step + 1
            self._do(operation)
        else:
            self._label = "end"

    def _do(self, operation: Operation) -> None:
        answer = _apply(self._client, self.case.namespace, operation)
        if operation.verb == "create" and operation.kind == "Workload":
            self._created.append(operation.name)
        if answer.status >= 400:
            self.recording.refused, self.is_done = f"{operation}: {answer}", True

    def _release(self, name: str) -> None:
        """As the controller of its job does when all pods have stopped."""
        conditions = {entry["type"]: entry for entry in self._workloads[name]["status"]["conditions"]}
        changed = [_condition("QuotaReserved", "False", "Pending", conditions["Evicted"]["message"])]
        if "Admitted" in conditions:
            changed.append(_condition("Admitted", "False", "NoReservation", "The workload has no reservation"))
        status = {"admission": None, "reclaimablePods": None}
        _set_conditions(self._client, self.case.namespace, name, *changed, **status)


class _Probe:
    """A queue with room for one workload: when that ends, the server has to find out that the next one fits."""

    def __init__(self, client: Client) -> None:
        self._client, self._number = client, 0
        flavor = {"name": "probe", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        self._create("Namespace", "probe", {}, version="v1")
        self._create("ResourceFlavor", "probe", {})
        self._create("ClusterQueue", "probe", {"namespaceSelector": {}, "resourceGroups": [group]})
        self._create("LocalQueue", "probe", {"clusterQueue": "probe"})
        self._add()

    def _create(self, kind: str, name: str, spec: Object, version: str = _VERSION) -> None:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        answer = _apply(self._client, "probe", Operation("create", kind, name, body))
        if answer.status >= 400:
            raise AssertionError(f"{kind} {name}: {answer}")

    def _add(self) -> None:
        resources = {"requests": {"cpu": "1"}}
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": resources}]}
        pod_sets = [{"name": "main", "count": 1, "template": {"spec": spec}}]
        self._create("Workload", f"probe-{self._number}", {"queueName": "probe", "podSets": pod_sets})
        self._number += 1

    def round_trip(self, limit: float = 60) -> None:
        """Wait until the next workload is admitted because the last one is gone."""
        self._add()
        _apply(self._client, "probe", Operation("delete", "Workload", f"probe-{self._number - 2}", {}))
        path = f"{_PLURALS['Workload'].format('probe')}/probe-{self._number - 1}"
        deadline = time.monotonic() + limit
        while reserved_at(self._client.get(path).json) is None:
            if time.monotonic() > deadline:
                raise AssertionError("the server does not admit a workload that fits")
            time.sleep(_POLL)


def run_cases(
    client: Client, cases: Sequence[Case], *, quiet_rounds: int = 1, limit: float = math.inf
) -> dict[int, Recording]:
    """The recording of each case by its seed. No other cases may have run on the server.

    `quiet_rounds`: in how many rounds nothing may change before the next step. `limit`: seconds after which cases that
    are not complete are left out.
    """
    deadline = time.monotonic() + limit
    running = [RunningCase(client, case, quiet_rounds) for case in cases]
    probe = _Probe(client)
    for case in running:
        case.set_up()
    while any(not case.is_done for case in running) and time.monotonic() < deadline:
        probe.round_trip()
        workloads = _by_name(client.get(f"{_API}/workloads", query={"resourceVersion": "0"}))
        queues = _by_name(client.get(f"{_API}/clusterqueues", query={"resourceVersion": "0"}))
        for case in running:
            if not case.is_done:
                case.observe(workloads, queues)
    return {case.case.seed: case.recording for case in running if case.is_done}


def _apply(client: Client, namespace: str, operation: Operation) -> Answer:
    return _retried(lambda: _send(client, namespace, operation))


def _retried(send: Callable[[], Answer]) -> Answer:
    """Send again while the webhooks of a slow Kueue do not answer the server: such a request has changed nothing."""
    deadline = time.monotonic() + _WEBHOOK_SECONDS
    while True:
        answer = send()
        if answer.status < 500 or _WEBHOOK_FAILED not in answer.text or time.monotonic() > deadline:
            return answer
        time.sleep(_POLL)


def _send(client: Client, namespace: str, operation: Operation) -> Answer:
    path = _PLURALS[operation.kind].format(namespace)
    match operation.verb:
        case "create":
            return client.post(path, operation.body)
        case "patch":
            return client.patch(f"{path}/{operation.name}", operation.body)
        case "patch-status":
            return client.patch(f"{path}/{operation.name}/status", operation.body)
        case "delete":
            return client.delete(f"{path}/{operation.name}")
    finished = _condition("Finished", "True", "JobFinished", "By test")
    return _set_conditions(client, namespace, operation.name, finished)


def _set_conditions(client: Client, namespace: str, name: str, *changed: Object, **status: Any) -> Answer:
    path = f"{_PLURALS['Workload'].format(namespace)}/{name}"
    while True:
        answer = client.get(path)
        if answer.status != 200:
            return answer
        obj = answer.json
        conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions") or ()}
        conditions |= {entry["type"]: entry for entry in changed}
        patch = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": list(conditions.values()), **status},
        }
        answer = _retried(partial(client.patch, f"{path}/status", patch))
        if answer.status != _CONFLICT:
            return answer


def _by_name(answer: Answer) -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj for obj in answer.json["items"]}


def _condition(type: str, status: str, reason: str, message: str) -> Object:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
