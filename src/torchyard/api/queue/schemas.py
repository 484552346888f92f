"""The schemas of the queue kinds in the stored version; `conversion` has the differences to v1beta1."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.structural import BOUNDED_INT32 as INT32
from torchyard.api.schema.structural import (
    INT64,
    QUANTITY,
    STRING,
    STRING_MAP,
    TIME,
    from_type,
    record,
    with_description,
)

IMMUTABLE: Object = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]}
# `validation` checks the quantities of specs, because its messages say what to write instead.
_QUANTITY: Object = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_QUANTITIES: Object = {"type": "object", "additionalProperties": QUANTITY}
_BOOLEAN: Object = {"type": "boolean"}
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NAMES: Object = {"type": "array", "items": STRING}
_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_PATTERN = rf"^{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*$"
NAME: Object = {"type": "string", "maxLength": 253, "pattern": _SUBDOMAIN_PATTERN}
_POD_SET_NAME: Object = {"type": "string", "maxLength": 63, "pattern": f"^{_LABEL_PATTERN}$"}
_CHECK_NAME: Object = {"type": "string", "minLength": 1, "maxLength": 316}
_COUNT: Object = {**INT32, "minimum": 0}
_CAUSE: Object = {"type": "string", "maxLength": 316}
_CLUSTER: Object = {"type": "string", "maxLength": 256}
_CONDITION_REASON: Object = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
}
_CONDITION_TYPE: Object = {
    "type": "string",
    "maxLength": 316,
    "pattern": rf"^({_LABEL_PATTERN}(\.{_LABEL_PATTERN})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
}


def _enum(*values: str, default: str = "") -> Object:
    schema: Object = {"type": "string", "enum": list(values)}
    return {**schema, "default": default} if default else schema


def _map_list(items: Object, *keys: str, max_items: int = 0) -> Object:
    """A list whose items are identified by a key."""
    schema: Object = {"type": "array", "items": items, "x-kubernetes-list-type": "map"}
    schema["x-kubernetes-list-map-keys"] = list(keys or ("name",))
    return {**schema, "maxItems": max_items} if max_items else schema


def _conditions() -> Object:
    fields = {
        "lastTransitionTime": TIME,
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {**INT64, "minimum": 0},
        "reason": _CONDITION_REASON,
        "status": _enum("True", "False", "Unknown"),
        "type": _CONDITION_TYPE,
    }
    condition = record(fields, "lastTransitionTime", "message", "reason", "status", "type")
    return _map_list(condition, "type", max_items=16)


def flavor() -> Object:
    taint = from_type(definition("io.k8s.api.core.v1.Taint"))
    toleration = from_type(definition("io.k8s.api.core.v1.Toleration"))
    spec = {
        "nodeLabels": with_description("Labels of the nodes. Admitted pods get them as node selector.", STRING_MAP),
        "nodeTaints": with_description(
            "Taints that pods must tolerate to use this flavor.", {"type": "array", "items": taint}
        ),
        "tolerations": with_description(
            "Tolerations that are added to admitted pods.", {"type": "array", "items": toleration}
        ),
        "topologyName": NAME,
    }
    return record({"spec": record(spec)})


def _groups() -> Object:
    quota = {
        "name": STRING,
        "nominalQuota": with_description("How much the queue may use without borrowing.", _QUANTITY),
        "borrowingLimit": with_description(
            "How much more it may borrow from its cohort. Unlimited if omitted.", _QUANTITY
        ),
        "lendingLimit": with_description("How much of its unused quota it lends. Everything if omitted.", _QUANTITY),
    }
    resources = {**_map_list(record(quota, "name", "nominalQuota"), max_items=64), "minItems": 1}
    flavors = {
        **_map_list(record({"name": NAME, "resources": resources}, "name", "resources"), max_items=64),
        "minItems": 1,
    }
    covered = {**_NAMES, "minItems": 1, "maxItems": 64}
    group = record({"coveredResources": covered, "flavors": flavors}, "coveredResources", "flavors")
    return {"type": "array", "items": group, "maxItems": 16}


def _preemption() -> Object:
    borrow = {
        "policy": _enum(names.NEVER, names.LOWER, default=names.NEVER),
        "maxPriorityThreshold": INT32,
    }
    fields = {
        "withinClusterQueue": _enum(names.NEVER, names.LOWER, names.LOWER_OR_NEWER, default=names.NEVER),
        "reclaimWithinCohort": _enum(names.NEVER, names.LOWER, names.ANY, default=names.NEVER),
        "borrowWithinCohort": {**record(borrow), "default": {}},
    }
    return {**record(fields), "default": {}}


def _fair_sharing() -> Object:
    return record({"weight": {**_QUANTITY, "default": 1}})


def _share(**more: Object) -> Object:
    return record({"weightedShare": INT64, **more}, "weightedShare")


def _local_queue_share() -> Object:
    consumed = record({"consumedResources": _QUANTITIES, "lastUpdate": TIME}, "consumedResources", "lastUpdate")
    return _share(admissionFairSharingStatus=consumed)


def _stop() -> Object:
    return _enum(names.NO_STOP, names.HOLD, names.HOLD_AND_DRAIN, default=names.NO_STOP)


def _usage(*, borrowed: bool) -> Object:
    fields: Object = {"name": STRING, "total": QUANTITY}
    if borrowed:
        fields["borrowed"] = QUANTITY
    resources = _map_list(record(fields, "name"), max_items=64)
    return _map_list(record({"name": NAME, "resources": resources}, "name", "resources"), max_items=64)


def _queue_status(*, borrowed: bool) -> Object:
    return record(
        {
            "conditions": _conditions(),
            "pendingWorkloads": INT32,
            "reservingWorkloads": INT32,
            "admittedWorkloads": INT32,
            "flavorsReservation": _usage(borrowed=borrowed),
            "flavorsUsage": _usage(borrowed=borrowed),
            "fairSharing": _share() if borrowed else _local_queue_share(),
        }
    )


def cluster_queue() -> Object:
    flavors: Object = {"type": "array", "items": NAME, "maxItems": 64, "x-kubernetes-list-type": "set"}
    rule = record({"name": _CHECK_NAME, "onFlavors": flavors}, "name")
    fungibility = {
        "whenCanBorrow": _enum(names.MAY_STOP, names.TRY_NEXT, default=names.MAY_STOP),
        "whenCanPreempt": _enum(names.MAY_STOP, names.TRY_NEXT, default=names.TRY_NEXT),
        "preference": _enum(names.BORROWING_OVER_PREEMPTION, names.PREEMPTION_OVER_BORROWING),
    }
    selector = from_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"))
    spec = {
        "resourceGroups": with_description("The resources, their flavors, and the quota of each.", _groups()),
        "cohortName": with_description("The cohort. ClusterQueues of one cohort lend each other unused quota.", NAME),
        "queueingStrategy": _enum(names.STRICT, names.BEST_EFFORT, default=names.BEST_EFFORT),
        "namespaceSelector": with_description(
            "The namespaces whose workloads it accepts: {} selects all, null selects none.", selector
        ),
        "flavorFungibility": {**record(fungibility), "default": {}},
        "preemption": _preemption(),
        "admissionChecksStrategy": record(
            {"admissionChecks": {**_map_list(rule, max_items=64), "minItems": 1}}, "admissionChecks"
        ),
        "stopPolicy": with_description(
            "Hold: admit no workloads. HoldAndDrain: also evict the admitted ones.", _stop()
        ),
        "fairSharing": _fair_sharing(),
        "admissionScope": record({"admissionMode": _enum(names.USAGE_BASED, names.NOT_USAGE_BASED)}, "admissionMode"),
        "concurrentAdmissionPolicy": _ANY,
    }
    return record({"spec": record(spec), "status": _queue_status(borrowed=True)})


def local_queue() -> Object:
    spec = {
        "clusterQueue": with_description("The ClusterQueue it submits to. Immutable.", {**NAME, **IMMUTABLE}),
        "stopPolicy": _stop(),
        "fairSharing": _fair_sharing(),
    }
    return record({"spec": record(spec), "status": _queue_status(borrowed=False)})


def _pod_set() -> Object:
    metadata = record(
        {
            "annotations": STRING_MAP,
            "finalizers": _NAMES,
            "labels": STRING_MAP,
            "name": STRING,
            "namespace": STRING,
        }
    )
    fields = {
        "name": {**_POD_SET_NAME, "default": names.MAIN},
        "template": record({"metadata": metadata, "spec": _ANY}),
        "count": {**INT32, "default": 1, "minimum": 0},
        "minCount": {**INT32, "minimum": 1},
        "topologyRequest": _ANY,
    }
    return record(fields, "template")


def _admission() -> Object:
    assignment = {
        "name": {**_POD_SET_NAME, "default": names.MAIN},
        "flavors": {"type": "object", "additionalProperties": NAME},
        "resourceUsage": _QUANTITIES,
        "count": _COUNT,
        "topologyAssignment": _ANY,
        "delayedTopologyRequest": _enum("Pending", "Ready"),
    }
    return record({"clusterQueue": NAME, "podSetAssignments": _map_list(record(assignment), max_items=18)})


def _check_state() -> Object:
    toleration = from_type(definition("io.k8s.api.core.v1.Toleration"))
    update = {
        "name": _POD_SET_NAME,
        "labels": STRING_MAP,
        "annotations": STRING_MAP,
        "nodeSelector": STRING_MAP,
        "tolerations": {"type": "array", "items": toleration, "maxItems": 8},
    }
    states = (names.CHECK_PENDING, names.CHECK_READY, names.CHECK_RETRY, names.CHECK_REJECTED)
    fields = {
        "name": _CHECK_NAME,
        "state": _enum(*states),
        "lastTransitionTime": TIME,
        "message": {"type": "string", "maxLength": 32768},
        "requeueAfterSeconds": _COUNT,
        "retryCount": _COUNT,
        "podSetUpdates": {"type": "array", "items": record(update, "name"), "maxItems": 18},
    }
    return record(fields, "name", "state", "lastTransitionTime", "message")


def workload() -> Object:
    reference = record(
        {
            "group": _enum(names.GROUP, "scheduling.k8s.io"),
            "kind": _enum(names.PRIORITY_CLASS.kind, "PriorityClass"),
            "name": {**NAME, "minLength": 1},
        },
        *("group", "kind", "name"),
    )
    spec = {
        "podSets": {**_map_list(_pod_set(), max_items=18), "minItems": 1},
        "queueName": NAME,
        "priorityClassRef": reference,
        "priority": INT32,
        "active": with_description(
            "false: evict the workload, and do not admit it again.", {**_BOOLEAN, "default": True}
        ),
        "maximumExecutionTimeSeconds": {**INT32, "minimum": 1},
        "preemptionGates": {"type": "array", "items": _ANY},
    }
    eviction = record(
        {"reason": _CAUSE, "underlyingCause": _CAUSE, "count": _COUNT}, "reason", "underlyingCause", "count"
    )
    gate = {
        "name": {"type": "string", "minLength": 1, "maxLength": 63},
        "position": _enum("Closed", "Open"),
        "lastTransitionTime": TIME,
    }
    status = {
        "conditions": _conditions(),
        "admission": _admission(),
        "requeueState": record({"count": _COUNT, "requeueAt": TIME}),
        "reclaimablePods": _map_list(record({"name": _POD_SET_NAME, "count": _COUNT}, "name", "count"), max_items=18),
        "admissionChecks": _map_list(_check_state(), max_items=8),
        "resourceRequests": _map_list(record({"name": _POD_SET_NAME, "resources": _QUANTITIES}, "name"), max_items=18),
        "accumulatedPastExecutionTimeSeconds": INT32,
        "schedulingStats": record({"evictions": _map_list(eviction, "reason", "underlyingCause", max_items=256)}),
        "nominatedClusterNames": {"type": "array", "items": _CLUSTER, "maxItems": 20},
        "clusterName": _CLUSTER,
        "preemptionGates": _map_list(record(gate, "name", "position", "lastTransitionTime"), max_items=8),
        "unhealthyNodes": _map_list(record({"name": {"type": "string", "maxLength": 63}}, "name"), max_items=8),
    }
    return record({"spec": record(spec), "status": record(status)})


def priority_class() -> Object:
    return record({"value": INT32, "description": {"type": "string", "maxLength": 2048}}, "value")


def cohort() -> Object:
    spec = {
        "parentName": with_description("The parent cohort, if any.", NAME),
        "resourceGroups": with_description("Quota that all members share, in addition to their own.", _groups()),
        "fairSharing": _fair_sharing(),
    }
    return record({"spec": record(spec), "status": record({"fairSharing": _share()})})


def check() -> Object:
    kind: Object = {
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$",
    }
    parameters = record(
        {"apiGroup": {**NAME, "minLength": 1}, "kind": kind, "name": {**_POD_SET_NAME, "minLength": 1}},
        *("apiGroup", "kind", "name"),
    )
    spec = {
        "controllerName": {**STRING, **IMMUTABLE, "minLength": 1, "maxLength": 253},
        "parameters": parameters,
        "retryDelayMinutes": INT64,
    }
    return record({"spec": record(spec, "controllerName"), "status": record({"conditions": _conditions()})})
