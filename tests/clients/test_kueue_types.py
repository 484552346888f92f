"""Kueue's typed v1beta1 clients: what their Go types write is taken, what comes back can be read into them.

The types are tables of field names, as Kueue's API has them; `support.gotypes` encodes and decodes as Go does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.gotypes import Go, fields
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339

pytestmark = pytest.mark.clients

ROOT = "/apis/kueue.x-k8s.io/v1beta1"

_KIND = "kind string, apiVersion string, metadata ObjectMeta, "
TYPES = {
    "ObjectMeta": fields(
        "name string, generateName string, namespace string, uid string, resourceVersion string, generation int64,"
        "creationTimestamp Time!, deletionTimestamp *Time, labels map[string]string, annotations map[string]string,"
        "finalizers []string, managedFields []any"
    ),
    "Condition": fields(
        "type string!, status string!, observedGeneration int64, lastTransitionTime Time!, reason string!,"
        "message string!"
    ),
    "ResourceFlavor": fields(_KIND + "spec ResourceFlavorSpec"),
    "ResourceFlavorSpec": fields(
        "nodeLabels map[string]string, nodeTaints []any, tolerations []any, topologyName *string"
    ),
    "WorkloadPriorityClass": fields(_KIND + "value int32!, description string"),
    "AdmissionCheck": fields(_KIND + "spec AdmissionCheckSpec, status AdmissionCheckStatus"),
    "AdmissionCheckSpec": fields("controllerName string!, retryDelayMinutes *int64, parameters any"),
    "AdmissionCheckStatus": fields("conditions []Condition"),
    "ClusterQueue": fields(_KIND + "spec ClusterQueueSpec, status ClusterQueueStatus"),
    "ClusterQueueSpec": fields(
        "resourceGroups []ResourceGroup, cohort string, queueingStrategy string, namespaceSelector *LabelSelector,"
        "flavorFungibility *FlavorFungibility, preemption *Preemption, admissionChecks []string, stopPolicy *string"
    ),
    "LabelSelector": fields("matchLabels map[string]string, matchExpressions []any"),
    "ResourceGroup": fields("coveredResources []string!, flavors []FlavorQuotas!"),
    "FlavorQuotas": fields("name string!, resources []ResourceQuota!"),
    "ResourceQuota": fields("name string!, nominalQuota Quantity!, borrowingLimit *Quantity, lendingLimit *Quantity"),
    "FlavorFungibility": fields("whenCanBorrow string, whenCanPreempt string"),
    "Preemption": fields("reclaimWithinCohort string, borrowWithinCohort *Borrow, withinClusterQueue string"),
    "Borrow": fields("policy string, maxPriorityThreshold *int32"),
    "ClusterQueueStatus": fields(
        "conditions []Condition, flavorsReservation []FlavorUsage!, flavorsUsage []FlavorUsage!,"
        "pendingWorkloads int32!, reservingWorkloads int32!, admittedWorkloads int32!"
    ),
    "FlavorUsage": fields("name string!, resources []ResourceUsage!"),
    "ResourceUsage": fields("name string!, total Quantity, borrowed Quantity"),
    "LocalQueue": fields(_KIND + "spec LocalQueueSpec, status LocalQueueStatus"),
    "LocalQueueSpec": fields("clusterQueue string, stopPolicy *string"),
    "LocalQueueStatus": fields(
        "pendingWorkloads int32!, reservingWorkloads int32!, admittedWorkloads int32!, conditions []Condition,"
        "flavorsReservation []FlavorUsage!, flavorUsage []FlavorUsage!"
    ),
    "Workload": fields(_KIND + "spec WorkloadSpec, status WorkloadStatus"),
    "WorkloadSpec": fields(
        "podSets []PodSet, queueName string, priorityClassName string, priority *int32, priorityClassSource string,"
        "active *bool, maximumExecutionTimeSeconds *int32"
    ),
    "PodSet": fields("name string, template PodTemplateSpec!, count int32!, minCount *int32"),
    "PodTemplateSpec": fields("metadata ObjectMeta, spec PodSpec"),
    "PodSpec": fields("containers []Container!, restartPolicy string, nodeSelector map[string]string"),
    "Container": fields("name string!, image string, command []string, resources Resources"),
    "Resources": fields("limits map[string]Quantity, requests map[string]Quantity"),
    "WorkloadStatus": fields(
        "admission *Admission, requeueState *RequeueState, conditions []Condition, reclaimablePods []ReclaimablePod,"
        "admissionChecks []CheckState, accumulatedPastExexcutionTimeSeconds *int32"
    ),
    "Admission": fields("clusterQueue string!, podSetAssignments []PodSetAssignment!"),
    "PodSetAssignment": fields(
        "name string!, flavors map[string]string, resourceUsage map[string]Quantity, count *int32"
    ),
    "RequeueState": fields("count *int32, requeueAt *Time"),
    "ReclaimablePod": fields("name string!, count int32!"),
    "CheckState": fields("name string!, state string!, lastTransitionTime Time!, message string!, podSetUpdates []any"),
}
GO = Go(TYPES)
QUOTA = {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "2"}
GROUP = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [QUOTA]}]}
CONTAINER = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
TEMPLATE = {"metadata": {}, "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
POD_SET = {"name": "main", "count": 1, "template": TEMPLATE}

# kind: where, what is made, and what is changed by the first update
CASES: dict[str, tuple[str, Object, Object]] = {
    "ResourceFlavor": ("resourceflavors", {"spec": {}}, {"spec": {"nodeLabels": {"kind": "fast"}}}),
    "WorkloadPriorityClass": ("workloadpriorityclasses", {"value": 7}, {"description": "for those in a hurry"}),
    "AdmissionCheck": (
        "admissionchecks",
        {"spec": {"controllerName": "example.com/budget"}},
        {"metadata": {"labels": {"a": "b"}}},
    ),
    "ClusterQueue": (
        "clusterqueues",
        {"spec": {"cohort": "all", "namespaceSelector": {}, "resourceGroups": [GROUP]}},
        {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}},
    ),
    "LocalQueue": (
        "namespaces/default/localqueues",
        {"spec": {"clusterQueue": "typed"}},
        {"spec": {"stopPolicy": "Hold"}},
    ),
    "Workload": (
        "namespaces/default/workloads",
        {"spec": {"podSets": [POD_SET], "queueName": "nobody"}},
        {
            "spec": {
                "priority": 3,
                "priorityClassName": "high",
                "priorityClassSource": "scheduling.k8s.io/priorityclass",
            }
        },
    ),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("typed"), controllers="kueue,namespace-controller") as server:
        yield server


def merged(obj: Object, change: Object) -> Object:
    return {
        **obj,
        **{
            key: merged(obj.get(key) or {}, value) if isinstance(value, dict) else value
            for key, value in change.items()
        },
    }


def put(plane: Server, kind: str, path: str, change: Object) -> Object:
    """Get, change, update, as a typed client does; retried after a conflict."""
    responses: list[Any] = []

    def updated() -> bool:
        read = GO.unmarshal(kind, plane.admin.get(path.removesuffix("/status")).json)
        responses.append(plane.admin.put(path, GO.marshal(kind, merged(read, change))))
        return bool(responses[-1].status != 409)

    eventually(updated, "an update")
    assert responses[-1].status == 200, responses[-1]
    decoded: Object = GO.unmarshal(kind, responses[-1].json)
    return decoded


@pytest.mark.parametrize(
    ("kind", "resource_path", "obj", "change"), [(key, *case) for key, case in CASES.items()], ids=CASES
)
def test_typed_clients_create_watch_and_update(
    plane: Server, kind: str, resource_path: str, obj: Object, change: Object
) -> None:
    path = f"{ROOT}/{resource_path}"
    head = {"kind": kind, "apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "typed"}}
    with plane.admin.watch(path) as watch:
        created = plane.admin.post(path, GO.marshal(kind, {**head, **obj}))
        assert created.status == 201, created
        read = GO.unmarshal(kind, created.json)
        assert merged(read, obj) == read, "what was sent is there"
        assert GO.unmarshal(kind, watch.next()["object"])["metadata"]["uid"] == read["metadata"]["uid"]
        after = put(plane, kind, f"{path}/typed", change)
        assert merged(after, change) == after
        while int(GO.unmarshal(kind, watch.next()["object"])["metadata"]["resourceVersion"]) < int(
            after["metadata"]["resourceVersion"]
        ):
            pass


def test_a_typed_client_admits_and_finishes_a_workload(plane: Server) -> None:
    path = f"{ROOT}/namespaces/default/workloads"
    head = {"kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "by-hand"}}
    assert plane.admin.post(path, GO.marshal("Workload", {**head, **CASES["Workload"][1]})).status == 201
    assignment = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    now = to_rfc3339(datetime.now(UTC))  # a workload that was admitted long ago is evicted: its pods are not ready

    def condition(type: str) -> Object:
        return {"type": type, "status": "True", "reason": type, "message": "", "lastTransitionTime": now}

    status = {
        "admission": {"clusterQueue": "other", "podSetAssignments": [assignment]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admissionChecks": [{"name": "budget", "state": "Ready", "lastTransitionTime": now, "message": ""}],
        "requeueState": {"count": 1, "requeueAt": now},
    }
    read = put(plane, "Workload", f"{path}/by-hand/status", {"status": status})
    assert merged(read, {"status": status}) == read
    ended = {"status": {"conditions": [*status["conditions"], condition("Finished")]}}
    assert put(plane, "Workload", f"{path}/by-hand/status", ended)["status"]["admission"] == status["admission"]
