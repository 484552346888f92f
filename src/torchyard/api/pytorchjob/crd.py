"""The CustomResourceDefinition of PyTorchJob. Pod types come from the schema of the built-in kinds."""

from __future__ import annotations

from functools import cache

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.structural import (
    INT32,
    INT64,
    QUANTITY,
    STRING,
    TIME,
    from_type,
    record,
    template,
    with_description,
)

CRD_NAME = f"{names.PLURAL}.{names.GROUP}"
QUEUE_IMMUTABLE = "spec.runPolicy.schedulingPolicy.queue is immutable"


def _elastic_policy() -> Object:
    metric = from_type(definition("io.k8s.api.autoscaling.v2.MetricSpec"))
    conf = record({"key": STRING, "value": STRING})
    return record(
        {
            "maxReplicas": with_description(
                "Upper limit of workers; defaults to minReplicas, or to the number of workers.", INT32
            ),
            "maxRestarts": with_description("How often torchrun restarts the worker group.", INT32),
            "metrics": with_description(
                "Makes a HorizontalPodAutoscaler that scales the workers by these metrics.",
                {"type": "array", "items": metric},
            ),
            "minReplicas": with_description(
                "Lower limit of workers; defaults to maxReplicas, or to the number of workers.", INT32
            ),
            "nProcPerNode": with_description("Deprecated: use spec.nprocPerNode.", INT32),
            "rdzvBackend": with_description(
                "Where workers meet: c10d (the default), etcd, etcd-v2, torchyard.", STRING
            ),
            "rdzvConf": with_description("Further settings of the meeting point.", {"type": "array", "items": conf}),
            "rdzvHost": with_description("Host of the meeting point; defaults to the first worker.", STRING),
            "rdzvId": with_description("The name of the meeting.", STRING),
            "rdzvPort": with_description("Port of the meeting point.", INT32),
            "standalone": with_description("Each replica meets only itself.", {"type": "boolean"}),
        }
    )


def _run_policy() -> Object:
    queue = {**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": QUEUE_IMMUTABLE}]}
    scheduling = {
        "minAvailable": with_description("How many replicas must fit at once before any starts.", INT32),
        "minResources": with_description(
            "What must be free at once before any starts.", {"type": "object", "additionalProperties": QUANTITY}
        ),
        "priorityClass": with_description("The priority class of the group.", STRING),
        "queue": with_description("The queue the job waits in; immutable.", queue),
        "scheduleTimeoutSeconds": with_description("How long the group may wait for its place.", INT32),
    }
    fields = {
        "activeDeadlineSeconds": with_description("The job fails when it was active for this long.", INT64),
        "backoffLimit": with_description("The job fails when its replicas were restarted this often.", INT32),
        "cleanPodPolicy": with_description(
            "What goes when the job is finished: None (the default), Running or All.", STRING
        ),
        "managedBy": with_description("Who looks after the job; immutable.", STRING),
        "schedulingPolicy": with_description("How the replicas are scheduled as one group.", record(scheduling)),
        "suspend": with_description(
            "Removes the replicas, or does not start them, until it is false again.", {"type": "boolean"}
        ),
        "ttlSecondsAfterFinished": with_description("The job is deleted this long after it finished.", INT32),
    }
    fields["suspend"]["default"] = False
    # Upstream has no default here, so its own SDK cannot read a job without runPolicy.
    return {**record(fields), "default": {}}


def _spec() -> Object:
    replica = record(
        {
            "replicas": with_description("How many; one by default.", INT32),
            "restartPolicy": with_description("Always, OnFailure (the default), Never or ExitCode.", STRING),
            "template": with_description("The pods.", template()),
        }
    )
    return record(
        {
            "elasticPolicy": with_description(
                "Lets workers come and go: how many, and where they meet.", _elastic_policy()
            ),
            "nprocPerNode": with_description("Processes per replica: auto, cpu, gpu or a number.", STRING),
            "pytorchReplicaSpecs": with_description(
                "By type: Master, Worker.", {"type": "object", "additionalProperties": replica}
            ),
            "runPolicy": with_description(
                "When the job ends, what is left of it then, and how it is scheduled.", _run_policy()
            ),
        },
        "pytorchReplicaSpecs",
    )


def _status() -> Object:
    condition = record(
        {
            "lastTransitionTime": TIME,
            "lastUpdateTime": TIME,
            "message": STRING,
            "reason": STRING,
            "status": STRING,
            "type": STRING,
        },
        "status",
        "type",
    )
    replica = record(
        {
            "active": INT32,
            "failed": INT32,
            "labelSelector": from_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector")),
            "selector": STRING,
            "succeeded": INT32,
        }
    )
    return record(
        {
            "completionTime": TIME,
            "conditions": {"type": "array", "items": condition},
            "lastReconcileTime": TIME,
            "replicaStatuses": {"type": "object", "additionalProperties": replica},
            "startTime": TIME,
        }
    )


@cache
def definition_object() -> Object:
    """Return the CustomResourceDefinition that is installed. The object is shared: copy it before changing it."""
    schema = record(
        {
            "apiVersion": STRING,
            "kind": STRING,
            "metadata": {"type": "object"},
            "spec": with_description("What to train, with how many replicas of which type.", _spec()),
            "status": with_description("How far it is.", _status()),
        }
    )
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": with_description("A distributed PyTorch training.", schema)},
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
