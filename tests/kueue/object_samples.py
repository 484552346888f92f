"""Valid objects of the queue kinds with as many of their fields as can be set together."""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]

_TIME = "2026-01-01T00:00:00Z"


class Sample(NamedTuple):
    kind: str
    version: str
    obj: Object
    verbs: tuple[str, ...] = ("create", "update", "status")


def _condition(type: str, status: str = "True") -> Object:
    return {
        "type": type,
        "status": status,
        "reason": "Sample",
        "message": "by test",
        "lastTransitionTime": _TIME,
        "observedGeneration": 1,
    }


def _groups() -> list[Object]:
    quota = {"nominalQuota": "4", "borrowingLimit": "2", "lendingLimit": "3"}
    resources = [{"name": "cpu", **quota}, {"name": "example.com/gpu", **quota}]
    return [{"coveredResources": ["cpu", "example.com/gpu"], "flavors": [{"name": "f", "resources": resources}]}]


def _usage(*, borrowed: bool) -> list[Object]:
    more = {"borrowed": "1"} if borrowed else {}
    return [{"name": "f", "resources": [{"name": "cpu", "total": "2", **more}]}]


def _queue_status(*, borrowed: bool) -> Object:
    return {
        "conditions": [_condition("Active")],
        "pendingWorkloads": 1,
        "reservingWorkloads": 1,
        "admittedWorkloads": 1,
        "flavorsReservation": _usage(borrowed=borrowed),
        "flavorsUsage": _usage(borrowed=borrowed),
        "fairSharing": {"weightedShare": 1},
    }


def _cluster_queue() -> Object:
    selector = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "stage", "operator": "In", "values": ["test"]}],
    }
    spec = {
        "resourceGroups": _groups(),
        "cohortName": "c",
        "queueingStrategy": "BestEffortFIFO",
        "namespaceSelector": selector,
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "BorrowingOverPreemption",
        },
        "preemption": {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
        },
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["f"]}]},
        "stopPolicy": "Hold",
        "fairSharing": {"weight": "2"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    }
    return {"spec": spec, "status": _queue_status(borrowed=True)}


def _old_cluster_queue() -> Object:
    obj = _cluster_queue()
    spec, status = obj["spec"], obj["status"]
    spec["cohort"] = spec.pop("cohortName")
    spec["flavorFungibility"] = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
    status["pendingWorkloadsStatus"] = {"lastChangeTime": _TIME, "clusterQueuePendingWorkload": []}
    return obj


def _local_queue() -> Object:
    spec = {"clusterQueue": "q", "stopPolicy": "Hold", "fairSharing": {"weight": "2"}}
    status = _queue_status(borrowed=False)
    usage = {"consumedResources": {"cpu": "1"}, "lastUpdate": _TIME}
    status["fairSharing"]["admissionFairSharingStatus"] = usage
    return {"spec": spec, "status": status}


def _old_local_queue() -> Object:
    obj = _local_queue()
    obj["status"]["flavorUsage"] = obj["status"].pop("flavorsUsage")
    return obj


def _flavor() -> Object:
    spec = {
        "nodeLabels": {"kind": "fast"},
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule", "timeAdded": _TIME}],
        "tolerations": [
            {"key": "slow", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 10}
        ],
    }
    return {"spec": spec}


def _cohort() -> Object:
    spec = {"parentName": "p", "resourceGroups": _groups(), "fairSharing": {"weight": "2"}}
    return {"spec": spec, "status": {"fairSharing": {"weightedShare": 1}}}


def _check() -> Object:
    parameters = {"apiGroup": "example.com", "kind": "Budget", "name": "b"}
    return {
        "spec": {"controllerName": "example.com/check", "parameters": parameters},
        "status": {"conditions": [_condition("Active")]},
    }


def _old_check() -> Object:
    obj = _check()
    obj["spec"]["retryDelayMinutes"] = 5
    return obj


def _template() -> Object:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80, "name": "web"}],
    }
    spec = {
        "containers": [container],
        "initContainers": [{**container, "name": "i", "restartPolicy": "Always"}],
        "restartPolicy": "Never",
        "nodeSelector": {"kind": "fast"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "overhead": {"cpu": "100m"},
        "resources": {"requests": {"cpu": "3"}},
        "priorityClassName": "high",
        "priority": 5,
        "runtimeClassName": "runc",
    }
    return {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": spec}


def _workload() -> Object:
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    spec = {
        "queueName": "q",
        "priority": 5,
        "priorityClassRef": reference,
        "active": True,
        "maximumExecutionTimeSeconds": 10**9,  # it has not ended, whatever the time is
        "podSets": [{"name": "main", "count": 4, "minCount": 2, "template": _template()}],
    }
    return {"spec": spec}


def _old_workload() -> Object:
    obj = _workload()
    del obj["spec"]["priorityClassRef"]
    obj["spec"] |= {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    return obj


def _with_status(obj: Object) -> Object:
    update = {
        "name": "main",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "tolerations": [{"key": "spot", "operator": "Equal", "value": "a", "effect": "NoExecute"}],
    }
    check = {
        "name": "check",
        "state": "Pending",
        "lastTransitionTime": _TIME,
        "message": "by test",
        "requeueAfterSeconds": 5,
        "retryCount": 1,
        "podSetUpdates": [update],
    }
    assignment = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}, "count": 4}
    status = {
        "conditions": [_condition(type) for type in ("QuotaReserved", "Admitted", "PodsReady")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "requeueState": {"count": 1, "requeueAt": _TIME},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [check],
        "resourceRequests": [{"name": "main", "resources": {"cpu": "4"}}],
        "accumulatedPastExecutionTimeSeconds": 3,
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
        "nominatedClusterNames": ["far"],
        "unhealthyNodes": [{"name": "n"}],
    }
    return {**obj, "status": status}


def _old_status(obj: Object) -> Object:
    complete = _with_status(obj)
    status = complete["status"]
    status["accumulatedPastExexcutionTimeSeconds"] = status.pop("accumulatedPastExecutionTimeSeconds")
    return complete


# `pending` has no reservation; `reserved` gets its status after its creation.
SAMPLES: dict[str, Sample] = {
    "cluster-queue": Sample("ClusterQueue", "v1beta2", _cluster_queue(), ("create", "status")),
    "cluster-queue-v1beta1": Sample("ClusterQueue", "v1beta1", _old_cluster_queue(), ("create",)),
    "cohort": Sample("Cohort", "v1beta2", _cohort(), ("create", "status")),
    "cohort-v1beta1": Sample("Cohort", "v1beta1", _cohort(), ("create",)),
    "local-queue": Sample("LocalQueue", "v1beta2", _local_queue()),
    "local-queue-v1beta1": Sample("LocalQueue", "v1beta1", _old_local_queue(), ("create",)),
    "flavor": Sample("ResourceFlavor", "v1beta2", _flavor(), ("create",)),
    "flavor-v1beta1": Sample("ResourceFlavor", "v1beta1", _flavor(), ("create",)),
    "check": Sample("AdmissionCheck", "v1beta2", _check()),
    "check-v1beta1": Sample("AdmissionCheck", "v1beta1", _old_check(), ("create",)),
    "priority-class": Sample(
        "WorkloadPriorityClass", "v1beta2", {"value": 5, "description": "d"}, ("create", "update")
    ),
    "priority-class-v1beta1": Sample("WorkloadPriorityClass", "v1beta1", {"value": 5, "description": "d"}, ("create",)),
    "pending": Sample("Workload", "v1beta2", _workload(), ("create",)),
    "pending-v1beta1": Sample("Workload", "v1beta1", _old_workload(), ("create",)),
    "reserved": Sample("Workload", "v1beta2", _with_status(_workload()), ("update", "status")),
    "reserved-v1beta1": Sample("Workload", "v1beta1", _old_status(_old_workload()), ("status",)),
}
