"""Invariants of a Job under random events and crashes between any two writes (point 42)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support import effort
from tests.support.jobs import NOW, stored

from torchyard.api.job.status import is_finished, is_true, validate_job_status
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended, is_active, phase
from torchyard.api.times import to_rfc3339
from torchyard.core.job.backoff import NO_FAILURES, Backoff
from torchyard.core.job.decide import JobDecision, decide
from torchyard.core.job.view import JobView, is_tracked

PHASES = ["Running", "Succeeded", "Failed"]


class JobLife(RuleBasedStateMachine):
    """A store with a Job and its pods, a kubelet, and a controller that may crash between any two writes."""

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = NOW
        self.job: Object = {}
        self.pods: dict[str, Object] = {}
        self.made = 0
        self.backoff: Backoff | None = NO_FAILURES
        self.succeeded: set[str] = set()  # every pod that ever ended
        self.unneeded: set[str] = set()  # deleted without finalizer: not counted
        self.last: Object = {}

    @initialize(
        indexed=st.booleans(),
        completions=st.sampled_from([None, 1, 2, 4]),
        parallelism=st.integers(1, 3),
        limit=st.integers(0, 3),
        per_index=st.sampled_from([None, 0, 1]),
        replacement=st.sampled_from(["Failed", "TerminatingOrFailed"]),
        suspend=st.booleans(),
        ignores=st.booleans(),
    )
    def start(
        self,
        indexed: bool,
        completions: int | None,
        parallelism: int,
        limit: int,
        per_index: int | None,
        replacement: str,
        suspend: bool,
        ignores: bool,
    ) -> None:
        spec: Object = {"parallelism": parallelism, "backoffLimit": limit, "suspend": suspend}
        spec["podReplacementPolicy"] = replacement
        if completions is not None or indexed:
            spec["completions"] = completions or 2
        if indexed:
            spec["completionMode"] = "Indexed"
            if per_index is not None:
                spec |= {"backoffLimitPerIndex": per_index, "backoffLimit": 2**31 - 1}
        if ignores:
            rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}}
            spec |= {"podFailurePolicy": {"rules": [rule]}, "podReplacementPolicy": "Failed"}
        self.job = stored(**spec)

    def _decide(self) -> JobDecision:
        pods = tuple(copy.deepcopy(pod) for pod in self.pods.values())
        counted = [pod for pod in pods if has_ended(pod) and not is_tracked(pod)]
        good = [pod for pod in counted if phase(pod) == "Succeeded"]
        bad = [pod for pod in counted if phase(pod) == "Failed"]
        backoff = NO_FAILURES.after(good, bad) if self.backoff is None else self.backoff
        return decide(JobView(copy.deepcopy(self.job), self.now, pods, backoff))

    @rule()
    def reconcile(self) -> None:
        self._carry_out(self._decide(), 10**6)

    @rule(steps=st.integers(0, 5))
    def reconcile_and_crash_after_some_writes(self, steps: int) -> None:
        self._carry_out(self._decide(), steps)
        self.backoff = None

    def _carry_out(self, decision: JobDecision, steps: int) -> None:
        writes: list[Any] = []
        for item in decision.delete:
            name = item.pod["metadata"]["uid"]
            if item.is_surplus:
                writes.append(lambda name=name: self._forget(name))
            writes.append(lambda name=name: self._delete(name))
        writes += [lambda pod=pod: self._create(pod) for pod in decision.create]
        if decision.status is not None:
            writes.append(lambda: self._write_status(decision.status))
        writes += [lambda name=pod["metadata"]["uid"]: self._release(name) for pod in decision.release]
        for write in writes[:steps]:
            write()
        if steps >= len(writes):
            self.backoff = decision.backoff

    def _create(self, pod: Object) -> None:
        self.made += 1
        name = f"pod-{self.made}"
        metadata = {**pod["metadata"], "uid": name, "name": name, "creationTimestamp": to_rfc3339(self.now)}
        self.pods[name] = {**pod, "metadata": metadata, "status": {"phase": "Pending"}}
        self._check_need()

    def _check_need(self) -> None:
        """No pod is created that the job does not need."""
        spec = self.job["spec"]
        active = sum(is_active(pod) for pod in self.pods.values())
        assert active <= spec["parallelism"]
        if (
            spec.get("completions")
            and spec["podReplacementPolicy"] == "Failed"
            and spec.get("completionMode") != "Indexed"
        ):
            assert active + len(self.succeeded - self.unneeded) <= spec["completions"]

    def _write_status(self, status: Object | None) -> None:
        new = {**self.job, "status": status}
        assert validate_job_status(new, self.job) == []
        self.job = copy.deepcopy(new)

    def _delete(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and not is_terminating(pod):
            pod["metadata"]["deletionTimestamp"] = to_rfc3339(self.now)
            self._remove_if_free(name)

    def _release(self, name: str) -> None:
        if name in self.pods:
            self.pods[name]["metadata"]["finalizers"] = []
            self._remove_if_free(name)

    def _forget(self, name: str) -> None:
        if name in self.pods and phase(self.pods[name]) != "Succeeded":
            self.unneeded.add(name)
        self._release(name)

    def _remove_if_free(self, name: str) -> None:
        """A terminating pod is removed when it has ended, or never started, and has no finalizer."""
        pod = self.pods[name]
        if is_terminating(pod) and not is_tracked(pod) and phase(pod) != "Running":
            del self.pods[name]

    def _some(self, which: int) -> Object | None:
        living = [pod for pod in self.pods.values() if not has_ended(pod)]
        return living[which % len(living)] if living else None

    @rule(which=st.integers(0, 9), end=st.sampled_from(PHASES), code=st.sampled_from([1, 9]))
    def a_pod_moves(self, which: int, end: str, code: int) -> None:
        pod = self._some(which)
        if pod is None:
            return
        name = pod["metadata"]["uid"]
        state: Object = {"running": {}}
        if end != "Running":
            state = {"terminated": {"exitCode": 0 if end == "Succeeded" else code, "finishedAt": to_rfc3339(self.now)}}
        pod["status"] = {"phase": end, "containerStatuses": [{"name": "main", "state": state}]}
        if end == "Succeeded":
            self.succeeded.add(name)
        self._remove_if_free(name)

    @rule(which=st.integers(0, 9))
    def a_user_deletes_a_pod(self, which: int) -> None:
        pod = self._some(which)
        if pod is not None:
            self._delete(pod["metadata"]["uid"])

    @rule(suspend=st.booleans())
    def a_user_suspends_or_resumes(self, suspend: bool) -> None:
        self.job["spec"]["suspend"] = suspend

    @rule(parallelism=st.integers(0, 4))
    def a_user_changes_parallelism(self, parallelism: int) -> None:
        self.job["spec"]["parallelism"] = parallelism

    @rule(seconds=st.sampled_from([1, 30, 900]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @property
    def status(self) -> Object:
        return self.job.get("status") or {}

    @invariant()
    def terminal_is_final(self) -> None:
        if is_finished(self.last):
            assert self.status == self.last
        self.last = copy.deepcopy(self.status)

    @invariant()
    def no_pod_is_counted_twice(self) -> None:
        status, uncounted = self.status, self.status.get("uncountedTerminatedPods") or {}
        good = (status.get("succeeded") or 0) + len(uncounted.get("succeeded") or ())
        assert good <= len(self.succeeded)
        bad = (status.get("failed") or 0) + len(uncounted.get("failed") or ())
        assert good + bad <= self.made
        assert set(uncounted.get("succeeded") or ()) <= self.succeeded

    @precondition(lambda self: is_finished(self.status))
    @invariant()
    def a_finished_job_has_let_go_of_its_pods(self) -> None:
        assert not any(is_tracked(pod) for pod in self.pods.values())
        if is_true(self.status, "Complete"):
            wanted = self.job["spec"].get("completions")
            assert (self.status.get("succeeded") or 0) >= (1 if wanted is None else wanted)

    @rule()
    def it_comes_to_rest_with_every_success_counted(self) -> None:
        for _ in range(60):
            decision = self._decide()
            if decision == JobDecision(backoff=decision.backoff, wake_after=decision.wake_after):
                break
            self._carry_out(decision, 10**6)
        else:
            raise AssertionError("it never rests")
        if not is_finished(self.status) and self.job["spec"].get("completionMode") != "Indexed":
            # Terminating pods count as failed at once, whatever they report later.
            needed = {name for name in self.succeeded if name not in self.unneeded}
            counted = self.status.get("succeeded") or 0
            assert counted <= len(needed)
            if self.job["spec"]["podReplacementPolicy"] == "Failed":
                assert counted == len(needed)


Test42JobLife = JobLife.TestCase
Test42JobLife.settings = settings(max_examples=effort.rounds(60, 2000), stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(effort.rounds(120, 3000)))
def test_random_histories_end_with_the_same_status(seed: int) -> None:
    """Conformance point 42: long random histories reach crashes between two given writes more often than Hypothesis."""
    rng, life = Random(seed), JobLife()
    life.start(
        rng.random() < 0.5,
        rng.choice([None, 1, 2, 4]),
        rng.randint(1, 3),
        rng.randint(0, 3),
        rng.choice([None, 0, 1]),
        rng.choice(["Failed", "TerminatingOrFailed"]),
        False,
        rng.random() < 0.3,
    )
    happenings: list[Callable[[], None]] = [
        life.reconcile,
        *[lambda: life.reconcile_and_crash_after_some_writes(rng.randint(0, 5))] * 2,
        *[lambda: life.a_pod_moves(rng.randint(0, 9), rng.choice(PHASES), rng.choice([1, 9]))] * 3,
        lambda: life.a_user_deletes_a_pod(rng.randint(0, 9)),
        lambda: life.time_passes(rng.choice([1, 30, 900])),
        life.it_comes_to_rest_with_every_success_counted,
    ]
    for _ in range(60):
        rng.choice(happenings)()
        life.terminal_is_final()
        life.no_pod_is_counted_twice()
        if is_finished(life.status):
            life.a_finished_job_has_let_go_of_its_pods()
