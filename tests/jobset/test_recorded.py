"""The plane treats JobSets as upstream's manager does: same child objects, statuses, conditions, events and refusals.

The differences that remain are listed here and in docs/compatibility.md. Upstream's manager ran natively, and each step
was taken after 12 seconds without a change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.jobset.cases import Case, random_cases, restart_job_cases
from tests.jobset.record import load
from tests.jobset.refusals import valid
from tests.jobset.run_cases import JOBSETS, Runner, States, refused
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

Object = dict[str, Any]
_UPSTREAM = load()
_PATIENCE = 120.0
_REQUIRED = "upstream's webhook writes the field with an empty value; here it is missing"
_TYPE = "upstream's webhook cannot decode it; here the schema is checked first"
OTHER_REFUSALS = {
    "depends without status": _REQUIRED,
    "startup policy without order": _REQUIRED,
    "success policy without operator": _REQUIRED,
    "rule without action": _REQUIRED,
    "coordinator without job": _REQUIRED,
    "no containers": _REQUIRED,
    "name with capitals": "the errors of derived names are reported too",
    "replicas is text": _TYPE,
    "suspend is text": _TYPE,
    "max restarts is text": _TYPE,
    "negative replicas": "upstream accepts it; here it is refused",
}
_CONTROLLERS = "jobset,garbage-collector-controller,namespace-controller"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("jobset"), controllers=_CONTROLLERS) as server:
        yield server


def _differences(expected: States, states: States) -> dict[str, Any]:
    differing: dict[str, Any] = {}
    for case, want in expected.items():
        got = states[case]
        for part in sorted({*want, *got}):
            if want.get(part) != got.get(part):
                differing[f"{case} {part}"] = {"upstream": want.get(part), "plane": got.get(part)}
    return differing


def compare(server: Server, cases: list[Case], recorded: Object, prefix: str = "") -> None:
    """Each step is taken when the server shows for every case what upstream showed."""
    cases = [replace(case, steps=case.steps[: len(recorded[case.name]["points"]) - 1]) for case in cases]
    runner = Runner(server.admin, cases, prefix)
    runner.start()
    number = -1
    while True:
        expected = {case.name: recorded[case.name]["points"][number + 1] for case in cases if number < len(case.steps)}
        differences = _wait(runner, expected)
        assert not differences, f"after step {number}: {json.dumps(differences, indent=1)[:6000]}"
        number += 1
        if not runner.step(number):
            break
    assert runner.answers == {case.name: recorded[case.name]["answers"] for case in cases}


def _wait(runner: Runner, expected: States) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE
    while True:
        differences = _differences(expected, runner.states())
        if not differences or time.monotonic() > deadline:
            return differences
        time.sleep(0.1)


@pytest.mark.timeout(300)
def test_random_jobsets_are_treated_as_upstream_treats_them(plane: Server) -> None:
    recorded = _UPSTREAM["random"]
    cases = [case for case in random_cases() if case.name in recorded]
    compare(plane, cases if FULL else cases[::3], recorded)


@pytest.mark.timeout(300)
def test_single_jobs_are_restarted_as_with_the_feature_gate_restart_job(plane: Server) -> None:
    recorded = _UPSTREAM["restart-job"]
    compare(plane, [case for case in restart_job_cases() if case.name in recorded], recorded)


def test_refusals_are_those_of_upstream(plane: Server) -> None:
    answers = refused(plane.admin, "refusals")
    differing = {name: (_UPSTREAM["refusals"][name], answer) for name, answer in answers.items()}
    differing = {name: pair for name, pair in differing.items() if pair[0] != pair[1]}
    assert differing.keys() == OTHER_REFUSALS.keys(), differing
    assert all(pair[1][0] == 422 for name, pair in differing.items() if pair[0][0] >= 400)


_WRONG_TYPES: dict[str, Any] = {
    "spec": "x",
    "spec.network": "x",
    "spec.replicatedJobs": "x",
    "spec.replicatedJobs[0]": None,
    "spec.replicatedJobs[0].template": [],
    "spec.replicatedJobs[0].template.spec": "x",
    "spec.replicatedJobs[0].template.spec.template": 1,
    "spec.replicatedJobs[0].template.spec.template.spec": [],
    "spec.failurePolicy": "x",
    "spec.failurePolicy.rules": {},
    "spec.failurePolicy.rules[0]": "x",
    "spec.volumeClaimPolicies": "x",
    "spec.volumeClaimPolicies[0]": 1,
}


def _set(obj: Any, path: str, value: Any) -> None:
    keys = [int(key) if key.isdecimal() else key for key in path.replace("[", ".").replace("]", "").split(".")]
    for key in keys[:-1]:
        obj = obj[key]
    obj[keys[-1]] = value


def test_values_of_wrong_types_are_refused_by_their_fields(plane: Server) -> None:
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": "wrong-types"}})
    for field, value in _WRONG_TYPES.items():
        jobset = valid()
        jobset["spec"] |= {"failurePolicy": {"rules": [{}]}, "volumeClaimPolicies": [{}]}
        _set(jobset, field, value)
        body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **jobset}
        answer = plane.admin.post(f"{JOBSETS}/namespaces/wrong-types/jobsets", body)
        assert answer.status == 422, (field, answer.text)
        assert field in [cause["field"] for cause in answer.json["details"]["causes"]], (field, answer.text)


def test_an_exhausted_quota_of_claims_does_not_stop_a_jobset_that_has_its_claims(plane: Server) -> None:
    """One claim is created by the controller, the other existed before, without the label."""
    admin, namespace = plane.admin, "claims-quota"
    admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    assert admin.post(claims, {"metadata": {"name": "old-bad"}, "spec": claim}).status == 201
    jobset = valid()
    policies = [{"templates": [{"metadata": {"name": name}, "spec": claim} for name in ("data", "old")]}]
    jobset["spec"]["volumeClaimPolicies"] = policies
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "old")]
    path = f"{JOBSETS}/namespaces/{namespace}/jobsets"
    answer = admin.post(path, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **jobset})
    assert answer.status == 201, answer.text
    eventually(lambda: admin.get(f"{claims}/data-bad").status == 200, "the claim")
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"persistentvolumeclaims": "2"}
    assert admin.post(quotas, {"metadata": {"name": "two"}, "spec": {"hard": hard}}).status == 201
    # a patch, because the controller of quotas may write meanwhile
    assert admin.patch(f"{quotas}/two/status", {"status": {"hard": hard, "used": hard}}).status == 200
    refused_claim = admin.post(claims, {"metadata": {"name": "more"}, "spec": claim})
    assert refused_claim.status == 403, refused_claim.text
    admin.patch(f"{path}/bad", {"spec": {"suspend": True}})

    def is_suspended() -> bool:
        conditions = (admin.get(f"{path}/bad").json.get("status") or {}).get("conditions") or ()
        return any(condition["type"] == "Suspended" and condition["status"] == "True" for condition in conditions)

    eventually(is_suspended, "the condition Suspended")
