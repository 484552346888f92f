"""Random histories of a job: pods are created, run, end and vanish, users interfere, the controller crashes."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.pytorchjobs import at, job

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages, names
from torchyard.api.times import to_rfc3339
from torchyard.core.pytorchjob.decide import PyTorchJobDecision, decide
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView, Restarts


class JobLife(RuleBasedStateMachine):
    """The API server in memory: decisions are applied to these objects, completely or in part."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0.0
        self.made = 0
        self.job: Object | None = None
        self.pods: dict[str, Object] = {}
        self.services: dict[str, Object] = {}
        self.ended: tuple[str, str] | None = None
        self.restarts = 0

    @initialize(
        policy=some.sampled_from(names.RESTART_POLICIES),
        master=some.booleans(),
        clean=some.sampled_from(names.CLEAN_POD_POLICIES),
        limit=some.sampled_from([None, 0, 1, 3]),
        whole=some.booleans(),
        deadline=some.sampled_from([None, 50]),
    )
    def start(
        self, policy: str, master: bool, clean: str, limit: int | None, whole: bool, deadline: int | None
    ) -> None:
        run: Object = {"cleanPodPolicy": clean}
        if limit is not None:
            run["backoffLimit"] = limit
        if deadline is not None:
            run["activeDeadlineSeconds"] = deadline
        marks = {names.RESTART_SCOPE: names.WHOLE_JOB} if whole else None
        self.job = job(policy=policy, master=1 if master else None, run=run, annotations=marks)

    def _decide(self) -> PyTorchJobDecision:
        assert self.job is not None
        view = PyTorchJobView.of(
            copy.deepcopy(self.job),
            at(self.clock),
            pods=[{**pod, "kind": "Pod"} for pod in self.pods.values()],
            services=[{**service, "kind": "Service"} for service in self.services.values()],
        )
        return decide(view, PyTorchJobSettings())

    @rule(steps=some.integers(min_value=0, max_value=8))
    def reconcile_and_crash_after_some_writes(self, steps: int) -> None:
        self._carry_out(self._decide(), steps)

    @rule()
    def reconcile(self) -> None:
        self._carry_out(self._decide(), 10_000)

    def _carry_out(self, decision: PyTorchJobDecision, steps: int) -> None:
        assert self.job is not None
        if decision.create:
            assert not self.job["spec"]["runPolicy"].get("suspend")
            assert self.ended is None
        writes: list[Any] = [decision.restarts, decision.status, *decision.create, *decision.delete]
        for write in [write for write in writes if write is not None][:steps]:
            if isinstance(write, Restarts):
                assert write.count > self.restarts
                self.restarts = write.count
                self.job["metadata"].setdefault("annotations", {})[names.RESTARTS] = write.text()
            elif write is decision.status:
                self.job["status"] = copy.deepcopy(write)
            elif isinstance(write, dict):
                self._create(write)
            else:
                self._delete(write.object, force=write.force)

    def _create(self, obj: Object) -> None:
        held = self.pods if obj["kind"] == "Pod" else self.services
        name = obj["metadata"]["name"]
        assert name not in held, f"{name} made twice"
        self.made += 1
        obj = copy.deepcopy(obj)
        obj["metadata"] |= {"uid": str(self.made), "creationTimestamp": to_rfc3339(at(self.clock))}
        held[name] = obj

    def _delete(self, obj: Object, *, force: bool) -> None:
        name = obj["metadata"]["name"]
        if obj["kind"] == "Service":
            del self.services[name]
            return
        pod = self.pods[name]
        if force or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            del self.pods[name]
        else:
            pod["metadata"]["deletionTimestamp"] = to_rfc3339(at(self.clock + 30))

    @precondition(lambda self: self.pods)
    @rule(
        which=some.integers(0, 9),
        phase=some.sampled_from(["Running", "Succeeded", "Failed"]),
        code=some.integers(0, 200),
    )
    def a_pod_moves(self, which: int, phase: str, code: int) -> None:
        pod = list(self.pods.values())[which % len(self.pods)]
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        state: Object = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": code}}
        container = {"name": names.CONTAINER, "restartCount": 0, "state": state}
        pod["status"] = {"phase": phase, "containerStatuses": [container]}

    @precondition(lambda self: self.pods)
    @rule(which=some.integers(0, 9))
    def a_pod_vanishes(self, which: int) -> None:
        del self.pods[list(self.pods)[which % len(self.pods)]]

    @rule(suspend=some.booleans())
    def a_user_suspends_or_resumes(self, suspend: bool) -> None:
        assert self.job is not None
        self.job["spec"]["runPolicy"]["suspend"] = suspend

    @rule(workers=some.integers(1, 4))
    def a_user_scales(self, workers: int) -> None:
        assert self.job is not None
        self.job["spec"]["pytorchReplicaSpecs"][names.WORKER]["replicas"] = workers

    @rule(seconds=some.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds

    @invariant()
    def terminal_is_final(self) -> None:
        status = (self.job or {}).get("status") or {}
        ends = [
            (condition["type"], condition["lastTransitionTime"])
            for condition in status.get("conditions") or ()
            if condition["type"] in messages.TERMINAL and condition["status"] == "True"
        ]
        assert len(ends) <= 1
        if self.ended is not None:
            assert ends == [self.ended]
        self.ended = ends[0] if ends else None
        assert ("completionTime" in status) is bool(ends)

    @invariant()
    def conditions_keep_their_rules(self) -> None:
        conditions = ((self.job or {}).get("status") or {}).get("conditions") or []
        kinds = [condition["type"] for condition in conditions]
        assert len(kinds) == len(set(kinds))
        assert not {messages.RUNNING, messages.RESTARTING} <= set(kinds)
        if kinds:
            assert kinds[0] == messages.CREATED
        if self.ended is not None:
            assert kinds[-1] == self.ended[0]
            assert all(
                condition["status"] == "False" for condition in conditions if condition["type"] == messages.RUNNING
            )

    @invariant()
    def counters_are_possible(self) -> None:
        status = (self.job or {}).get("status") or {}
        for counts in (status.get("replicaStatuses") or {}).values():
            assert all(counts.get(name, 1) > 0 for name in ("active", "succeeded", "failed"))

    @invariant()
    def a_second_reconciliation_after_a_whole_one_changes_no_status(self) -> None:
        if self.job is None:
            return
        before = copy.deepcopy((self.job, self.pods, self.services))
        first = self._decide()
        if first.status is not None and not first.restarts and not first.create and not first.delete:
            self.job["status"] = copy.deepcopy(first.status)
            second = self._decide().status
            # Success takes two passes: the condition is stored before running replicas are counted as succeeded.
            assert second is None or _is_settled(first.status, second)
        self.job, self.pods, self.services = before


def _is_settled(first: Object, second: Object) -> bool:
    return {**first, "replicaStatuses": None} == {**second, "replicaStatuses": None}


TestJobLife = JobLife.TestCase
TestJobLife.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
