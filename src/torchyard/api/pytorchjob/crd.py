"""The CustomResourceDefinition of PyTorchJob, put together from this table and the types of the built-in kinds."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchyard.api.pytorchjob import names
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.types import Type

Object = dict[str, Any]

CRD_NAME = f"{names.PLURAL}.{names.GROUP}"
QUEUE_IMMUTABLE = "spec.runPolicy.schedulingPolicy.queue is immutable"

_QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_QUANTITY: Object = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": _QUANTITY_PATTERN,
}
_STRING: Object = {"type": "string"}
_INT32: Object = {"type": "integer", "format": "int32"}
_INT64: Object = {"type": "integer", "format": "int64"}
_TIME: Object = {"type": "string", "format": "date-time"}
_STRINGS: Object = {"type": "array", "items": _STRING, "nullable": True}
_STRING_MAP: Object = {"type": "object", "additionalProperties": _STRING, "nullable": True}


def _says(text: str, schema: Object) -> Object:
    return {"description": text, **schema}


def _object(properties: Object, *required: str) -> Object:
    made: Object = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


def _from_type(type: Type) -> Object:
    """A built-in type as a structural schema. An optional field may be null, which Go reads as left out."""
    if type.shape == "object":
        fields = {name: _optional(child, name in type.required) for name, child in type.fields.items()}
        return _object(fields, *type.required)
    if type.shape == "map" and type.values:
        return {"type": "object", "additionalProperties": _from_type(type.values)}
    if type.shape == "list" and type.items:
        return {"type": "array", "items": _from_type(type.items)}
    if type.shape == "any":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if type.format == "quantity":
        return _QUANTITY
    if type.shape == "int-or-string":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    kept = type.format in ("int32", "int64", "date-time", "byte", "double")
    return {"type": type.shape, "format": type.format} if kept else {"type": type.shape}


def _optional(type: Type, required: bool) -> Object:
    made = _from_type(type)
    return made if required else {**made, "nullable": True}


def _template() -> Object:
    """A pod template whose metadata keeps what is copied to pods."""
    metadata = {
        "annotations": _STRING_MAP,
        "finalizers": _STRINGS,
        "labels": _STRING_MAP,
        "name": _STRING,
        "namespace": _STRING,
    }
    pod = _from_type(definition("io.k8s.api.core.v1.PodSpec"))
    return _object({"metadata": {**_object(metadata), "nullable": True}, "spec": pod})


def _elastic_policy() -> Object:
    metric = _from_type(definition("io.k8s.api.autoscaling.v2.MetricSpec"))
    conf = _object({"key": _STRING, "value": _STRING})
    return _object(
        {
            "maxReplicas": _says(
                "Upper limit of workers; defaults to minReplicas, or to the number of workers.", _INT32
            ),
            "maxRestarts": _says("How often torchrun restarts the worker group.", _INT32),
            "metrics": _says(
                "Makes a HorizontalPodAutoscaler that scales the workers by these metrics.",
                {"type": "array", "items": metric},
            ),
            "minReplicas": _says(
                "Lower limit of workers; defaults to maxReplicas, or to the number of workers.", _INT32
            ),
            "nProcPerNode": _says("Deprecated: use spec.nprocPerNode.", _INT32),
            "rdzvBackend": _says("Where workers meet: c10d (the default), etcd, etcd-v2.", _STRING),
            "rdzvConf": {"type": "array", "items": conf},
            "rdzvHost": _says("Host of the meeting point; defaults to the first worker.", _STRING),
            "rdzvId": _STRING,
            "rdzvPort": _INT32,
            "standalone": {"type": "boolean"},
        }
    )


def _run_policy() -> Object:
    queue = {**_STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": QUEUE_IMMUTABLE}]}
    scheduling = {
        "minAvailable": _says("How many replicas must fit at once before any starts.", _INT32),
        "minResources": {"type": "object", "additionalProperties": _QUANTITY},
        "priorityClass": _STRING,
        "queue": queue,
        "scheduleTimeoutSeconds": _INT32,
    }
    fields = {
        "activeDeadlineSeconds": _says("The job fails when it was active for this long.", _INT64),
        "backoffLimit": _says("The job fails when its replicas were restarted this often.", _INT32),
        "cleanPodPolicy": _says("What goes when the job is finished: None (the default), Running or All.", _STRING),
        "managedBy": _says("Who looks after the job; immutable.", _STRING),
        "schedulingPolicy": _object(scheduling),
        "suspend": _says("Removes the replicas, or does not start them, until it is false again.", {"type": "boolean"}),
        "ttlSecondsAfterFinished": _says("The job is deleted this long after it finished.", _INT32),
    }
    fields["suspend"]["default"] = False
    # Upstream has no default here, and then its own SDK cannot read a job without runPolicy.
    return {**_object(fields), "default": {}}


def _spec() -> Object:
    replica = _object(
        {
            "replicas": _says("How many; one by default.", _INT32),
            "restartPolicy": _says("Always, OnFailure (the default), Never or ExitCode.", _STRING),
            "template": _template(),
        }
    )
    return _object(
        {
            "elasticPolicy": _elastic_policy(),
            "nprocPerNode": _says("Processes per replica: auto, cpu, gpu or a number.", _STRING),
            "pytorchReplicaSpecs": _says(
                "By type: Master, Worker.", {"type": "object", "additionalProperties": replica}
            ),
            "runPolicy": _run_policy(),
        },
        "pytorchReplicaSpecs",
    )


def _status() -> Object:
    condition = _object(
        {
            "lastTransitionTime": _TIME,
            "lastUpdateTime": _TIME,
            "message": _STRING,
            "reason": _STRING,
            "status": _STRING,
            "type": _STRING,
        },
        "status",
        "type",
    )
    replica = _object(
        {
            "active": _INT32,
            "failed": _INT32,
            "labelSelector": _from_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector")),
            "selector": _STRING,
            "succeeded": _INT32,
        }
    )
    return _object(
        {
            "completionTime": _TIME,
            "conditions": {"type": "array", "items": condition},
            "lastReconcileTime": _TIME,
            "replicaStatuses": {"type": "object", "additionalProperties": replica},
            "startTime": _TIME,
        }
    )


@cache
def definition_object() -> Object:
    """The CustomResourceDefinition as it is installed. Shared: copy it before changing it."""
    schema = _object(
        {
            "apiVersion": _STRING,
            "kind": _STRING,
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        }
    )
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _says("A distributed PyTorch training.", schema)},
        "additionalPrinterColumns": [
            {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
                "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
            },
        },
    }
    kinds = {
        "kind": names.KIND,
        "listKind": f"{names.KIND}List",
        "plural": names.PLURAL,
        "singular": names.SINGULAR,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {"group": names.GROUP, "names": kinds, "scope": "Namespaced", "versions": [version]},
    }
