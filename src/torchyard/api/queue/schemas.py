"""The schemas of the queue kinds in their stored version; `conversion` tells what the older one calls differently."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.structural import INT32, INT64, STRING, STRING_MAP, TIME, from_type, record, with_description

IMMUTABLE: Object = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]}
# Amounts are judged by `validation`, whose words say what to write instead.
_AMOUNT: Object = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_AMOUNTS: Object = {"type": "object", "additionalProperties": _AMOUNT}
_BOOLEAN: Object = {"type": "boolean"}
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NAMES: Object = {"type": "array", "items": STRING}


def _choice(*values: str, default: str = "") -> Object:
    made: Object = {"type": "string", "enum": list(values)}
    return {**made, "default": default} if default else made


def _keyed(items: Object, *keys: str, most: int = 0) -> Object:
    """A list whose items are told apart by a key."""
    made: Object = {"type": "array", "items": items, "x-kubernetes-list-type": "map"}
    made["x-kubernetes-list-map-keys"] = list(keys or ("name",))
    return {**made, "maxItems": most} if most else made


def _conditions() -> Object:
    fields = {
        "lastTransitionTime": TIME,
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": INT64,
        "reason": STRING,
        "status": _choice("True", "False", "Unknown"),
        "type": STRING,
    }
    one = record(fields, "lastTransitionTime", "message", "reason", "status", "type")
    return _keyed(one, "type", most=16)


def flavor() -> Object:
    taint = from_type(definition("io.k8s.api.core.v1.Taint"))
    toleration = from_type(definition("io.k8s.api.core.v1.Toleration"))
    spec = {
        "nodeLabels": with_description("Labels of the nodes; become the node selector of admitted pods.", STRING_MAP),
        "nodeTaints": with_description("Taints that pods must tolerate to get it.", {"type": "array", "items": taint}),
        "tolerations": with_description("Added to admitted pods.", {"type": "array", "items": toleration}),
        "topologyName": STRING,
    }
    return record({"spec": record(spec)})


def _groups() -> Object:
    quota = {
        "name": STRING,
        "nominalQuota": with_description("What the queue may always use.", _AMOUNT),
        "borrowingLimit": with_description(
            "How much more it may borrow from its cohort; no limit if left out.", _AMOUNT
        ),
        "lendingLimit": with_description("How much of its own it lends; everything if left out.", _AMOUNT),
    }
    resources = {**_keyed(record(quota, "name", "nominalQuota"), most=64), "minItems": 1}
    flavors = {**_keyed(record({"name": STRING, "resources": resources}, "name", "resources"), most=64), "minItems": 1}
    covered = {**_NAMES, "minItems": 1, "maxItems": 64}
    group = record({"coveredResources": covered, "flavors": flavors}, "coveredResources", "flavors")
    return {"type": "array", "items": group, "maxItems": 16}


def _preemption() -> Object:
    borrow = {
        "policy": _choice(names.NEVER, names.LOWER, default=names.NEVER),
        "maxPriorityThreshold": INT32,
    }
    fields = {
        "withinClusterQueue": _choice(names.NEVER, names.LOWER, names.LOWER_OR_NEWER, default=names.NEVER),
        "reclaimWithinCohort": _choice(names.NEVER, names.LOWER, names.ANY, default=names.NEVER),
        "borrowWithinCohort": {**record(borrow), "default": {}},
    }
    return {**record(fields), "default": {}}


def _fair_sharing() -> Object:
    return record({"weight": {**_AMOUNT, "default": 1}})


def _share() -> Object:
    return record({"weightedShare": INT64, "admissionFairSharingStatus": _ANY})


def _stop() -> Object:
    return _choice(names.NO_STOP, names.HOLD, names.HOLD_AND_DRAIN, default=names.NO_STOP)


def _usage(*, borrowed: bool) -> Object:
    fields: Object = {"name": STRING, "total": _AMOUNT}
    if borrowed:
        fields["borrowed"] = _AMOUNT
    resources = _keyed(record(fields, "name"), most=64)
    return _keyed(record({"name": STRING, "resources": resources}, "name", "resources"), most=64)


def _queue_status(*, borrowed: bool) -> Object:
    return record(
        {
            "conditions": _conditions(),
            "pendingWorkloads": INT32,
            "reservingWorkloads": INT32,
            "admittedWorkloads": INT32,
            "flavorsReservation": _usage(borrowed=borrowed),
            "flavorsUsage": _usage(borrowed=borrowed),
            "fairSharing": _share(),
        }
    )


def cluster_queue() -> Object:
    rule = record({"name": STRING, "onFlavors": {**_NAMES, "x-kubernetes-list-type": "set"}}, "name")
    fungibility = {
        "whenCanBorrow": _choice(names.MAY_STOP, names.TRY_NEXT, default=names.MAY_STOP),
        "whenCanPreempt": _choice(names.MAY_STOP, names.TRY_NEXT, default=names.TRY_NEXT),
        "preference": _choice("BorrowingOverPreemption", "PreemptionOverBorrowing"),
    }
    selector = from_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"))
    spec = {
        "resourceGroups": with_description(
            "Which resources it has, in which flavors, and how much of each.", _groups()
        ),
        "cohortName": with_description("Queues of one cohort lend each other what they do not use.", STRING),
        "queueingStrategy": _choice(names.STRICT, names.BEST_EFFORT, default=names.BEST_EFFORT),
        "namespaceSelector": with_description("Whose workloads it takes: {} everybody's, null nobody's.", selector),
        "flavorFungibility": {**record(fungibility), "default": {}},
        "preemption": _preemption(),
        "admissionChecksStrategy": record({"admissionChecks": _keyed(rule, most=64)}),
        "stopPolicy": with_description("Hold: admits no more. HoldAndDrain: evicts what runs, too.", _stop()),
        "fairSharing": _fair_sharing(),
        "admissionScope": _ANY,
        "concurrentAdmissionPolicy": _ANY,
    }
    return record({"spec": record(spec), "status": _queue_status(borrowed=True)})


def local_queue() -> Object:
    spec = {
        "clusterQueue": with_description("The ClusterQueue behind it; immutable.", {**STRING, **IMMUTABLE}),
        "stopPolicy": _stop(),
        "fairSharing": _fair_sharing(),
    }
    return record({"spec": record(spec), "status": _queue_status(borrowed=False)})


def _pod_set() -> Object:
    metadata = record({"labels": STRING_MAP, "annotations": STRING_MAP})
    fields = {
        "name": {**STRING, "default": names.MAIN, "maxLength": 63},
        "template": record({"metadata": metadata, "spec": _ANY}),
        "count": {**INT32, "default": 1, "minimum": 0},
        "minCount": {**INT32, "minimum": 1},
        "topologyRequest": _ANY,
    }
    return record(fields, "template")


def _admission() -> Object:
    assignment = {
        "name": {**STRING, "default": names.MAIN},
        "flavors": {"type": "object", "additionalProperties": STRING},
        "resourceUsage": _AMOUNTS,
        "count": {**INT32, "minimum": 0},
        "topologyAssignment": _ANY,
        "delayedTopologyRequest": STRING,
    }
    return record({"clusterQueue": STRING, "podSetAssignments": _keyed(record(assignment), most=18)})


def _check_state() -> Object:
    toleration = from_type(definition("io.k8s.api.core.v1.Toleration"))
    update = {
        "name": STRING,
        "labels": STRING_MAP,
        "annotations": STRING_MAP,
        "nodeSelector": STRING_MAP,
        "tolerations": {"type": "array", "items": toleration},
    }
    states = (names.CHECK_PENDING, names.CHECK_READY, names.CHECK_RETRY, names.CHECK_REJECTED)
    fields = {
        "name": STRING,
        "state": _choice(*states),
        "lastTransitionTime": TIME,
        "message": {"type": "string", "maxLength": 32768},
        "requeueAfterSeconds": INT32,
        "retryCount": INT32,
        "podSetUpdates": {"type": "array", "items": record(update, "name")},
    }
    return record(fields, "name", "state", "lastTransitionTime", "message")


def workload() -> Object:
    reference = record({"group": STRING, "kind": STRING, "name": STRING}, "group", "kind", "name")
    spec = {
        "podSets": {**_keyed(_pod_set(), most=18), "minItems": 1},
        "queueName": STRING,
        "priorityClassRef": reference,
        "priority": INT32,
        "active": with_description("false: evicted, and not admitted any more.", {**_BOOLEAN, "default": True}),
        "maximumExecutionTimeSeconds": {**INT32, "minimum": 1},
        "preemptionGates": {"type": "array", "items": _ANY},
    }
    eviction = record(
        {"reason": STRING, "underlyingCause": STRING, "count": INT32}, "reason", "underlyingCause", "count"
    )
    status = {
        "conditions": _conditions(),
        "admission": _admission(),
        "requeueState": record({"count": {**INT32, "minimum": 0}, "requeueAt": TIME}),
        "reclaimablePods": _keyed(record({"name": STRING, "count": {**INT32, "minimum": 0}}, "name", "count"), most=18),
        "admissionChecks": _keyed(_check_state(), most=64),
        "resourceRequests": _keyed(record({"name": STRING, "resources": _AMOUNTS}, "name"), most=18),
        "accumulatedPastExecutionTimeSeconds": INT32,
        "schedulingStats": record({"evictions": _keyed(eviction, "reason", "underlyingCause", most=256)}),
        "nominatedClusterNames": _NAMES,
        "clusterName": STRING,
        "unhealthyNodes": {"type": "array", "items": _ANY},
    }
    return record({"spec": record(spec), "status": record(status)})


def priority_class() -> Object:
    return record({"value": INT32, "description": STRING}, "value")


def cohort() -> Object:
    spec = {
        "parentName": with_description("The cohort it belongs to, if any.", STRING),
        "resourceGroups": with_description("Quota that all its members share, beside their own.", _groups()),
        "fairSharing": _fair_sharing(),
    }
    return record({"spec": record(spec), "status": record({"fairSharing": _share()})})


def check() -> Object:
    parameters = record({"apiGroup": STRING, "kind": STRING, "name": STRING}, "apiGroup", "kind", "name")
    spec = {
        "controllerName": {**STRING, **IMMUTABLE},
        "parameters": parameters,
        "retryDelayMinutes": INT64,
    }
    return record({"spec": record(spec, "controllerName"), "status": record({"conditions": _conditions()})})
