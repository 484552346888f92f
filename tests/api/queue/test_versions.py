"""The two versions of the queue kinds: one object, two sets of names, and definitions that a real server takes."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator

import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.conversion import CONVERSIONS
from torchyard.api.queue.crd import definitions

OLD, NEW = "/apis/kueue.x-k8s.io/v1beta1", "/apis/kueue.x-k8s.io/v1beta2"
GROUP = {
    "coveredResources": ["cpu"],
    "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
}
CASES: dict[str, tuple[str, Object, Object]] = {
    "cohorts": ("clusterqueues", {"spec": {"cohort": "all"}}, {"spec": {"cohortName": "all"}}),
    "when to stop the search": (
        "clusterqueues",
        {"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}},
        {"spec": {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}}},
    ),
    "usage of a local queue": (
        "localqueues",
        {"status": {"flavorUsage": [{"name": "f"}]}},
        {"status": {"flavorsUsage": [{"name": "f"}]}},
    ),
    "queue priorities": (
        "workloads",
        {"spec": {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}},
        {"spec": {"priorityClassRef": {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": "high"}}},
    ),
    "pod priorities": (
        "workloads",
        {"spec": {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"}},
        {"spec": {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}}},
    ),
    "times": (
        "workloads",
        {"status": {"accumulatedPastExexcutionTimeSeconds": 3}},
        {"status": {"accumulatedPastExecutionTimeSeconds": 3}},
    ),
}


@pytest.mark.parametrize(("plural", "old", "new"), CASES.values(), ids=CASES)
def test_conversion_between_versions_is_lossless(plural: str, old: Object, new: Object) -> None:
    to_stored, to_old = CONVERSIONS[plural]
    assert to_stored(copy.deepcopy(old)) == new
    assert to_old(copy.deepcopy(new)) == old


def test_admission_checks_become_a_strategy() -> None:
    converted = CONVERSIONS["clusterqueues"][0]({"spec": {"admissionChecks": ["budget"]}})
    assert converted["spec"] == {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}


@pytest.mark.cluster
def test_real_api_server_accepts_the_definitions(kube_bare: Server) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in definitions():
        answer = kube_bare.admin.post(path, definition)
        assert answer.status == 201, answer.message
    for definition in definitions():
        conditions: dict[str, str] = {}
        deadline = time.monotonic() + 30
        while conditions.get("Established") != "True" and time.monotonic() < deadline:
            obj = kube_bare.admin.get(f"{path}/{definition['metadata']['name']}").json
            conditions = {
                condition["type"]: condition["status"]
                for condition in (obj.get("status") or {}).get("conditions") or ()
            }
            time.sleep(0.05)
        assert conditions.get("Established") == "True"
        assert "NonStructuralSchema" not in conditions


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("queues"), controllers="kueue,namespace-controller") as server:
        yield server


def test_v1beta1_object_is_stored_as_v1beta2(plane: Server) -> None:
    spec = {"cohort": "all", "namespaceSelector": {}, "resourceGroups": [GROUP]}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": spec}
    created = plane.admin.post(f"{OLD}/clusterqueues", body)
    assert created.status == 201
    assert created.json["spec"]["cohort"] == "all"
    assert created.json["spec"]["flavorFungibility"]["whenCanBorrow"] == "Borrow"
    assert created.json["spec"]["queueingStrategy"] == "BestEffortFIFO"
    stored = plane.admin.get(f"{NEW}/clusterqueues/team").json
    assert stored["spec"]["cohortName"] == "all"
    assert "cohort" not in stored["spec"]
    changed = created.json
    changed["spec"]["cohort"] = "others"

    def update() -> bool:
        current = plane.admin.get(f"{OLD}/clusterqueues/team").json["metadata"]
        changed["metadata"]["resourceVersion"] = current["resourceVersion"]
        response = plane.admin.put(f"{OLD}/clusterqueues/team", changed)
        assert response.status in (200, 409), response.message
        return response.status == 200

    eventually(update, "an update without a conflict with the status controller")
    assert plane.admin.get(f"{NEW}/clusterqueues/team").json["spec"]["cohortName"] == "others"


def test_watch_uses_the_requested_version(plane: Server) -> None:
    with plane.admin.watch(f"{OLD}/workloads") as watch:
        spec = {
            "podSets": [{"template": {"spec": {"containers": []}}}],
            "priority": 7,
            "priorityClassRef": {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": "high"},
        }
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}
        assert plane.admin.post(f"{NEW}/namespaces/default/workloads", body).status == 201
        workload = watch.next()["object"]
    assert workload["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert workload["spec"]["priorityClassName"] == "high"
    assert workload["spec"]["podSets"][0]["name"] == "main"
    assert workload["spec"]["active"] is True


def test_invalid_quantity_is_rejected_with_a_suggestion(plane: Server) -> None:
    quota = {"name": "memory", "nominalQuota": "64GB"}
    group = {"coveredResources": ["memory"], "flavors": [{"name": "default", "resources": [quota]}]}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "wrong"},
        "spec": {"resourceGroups": [group]},
    }
    answer = plane.admin.post(f"{OLD}/clusterqueues", body)
    assert answer.status == 422
    assert "use 64G" in answer.message
