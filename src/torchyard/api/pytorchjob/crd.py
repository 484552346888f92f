"""The CustomResourceDefinition of PyTorchJob. Pod types come from the schema of the built-in kinds."""

from __future__ import annotations

from functools import cache

from torchyard.api.objects import Object
from torchyard.api.progress import ANNOTATION_COLUMN
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
                "Maximum number of workers; defaults to minReplicas, or to the number of workers.", INT32
            ),
            "maxRestarts": with_description("How often torchrun restarts the worker group.", INT32),
            "metrics": with_description(
                "Metrics of a HorizontalPodAutoscaler that scales the workers.",
                {"type": "array", "items": metric},
            ),
            "minReplicas": with_description(
                "Minimum number of workers; defaults to maxReplicas, or to the number of workers.", INT32
            ),
            "nProcPerNode": with_description("Deprecated: use spec.nprocPerNode.", INT32),
            "rdzvBackend": with_description(
                "Rendezvous backend: c10d (the default), etcd, etcd-v2, torchyard.", STRING
            ),
            "rdzvConf": with_description("Additional rendezvous settings.", {"type": "array", "items": conf}),
            "rdzvHost": with_description("Rendezvous host; defaults to the first worker.", STRING),
            "rdzvId": with_description("Rendezvous ID.", STRING),
            "rdzvPort": with_description("Rendezvous port.", INT32),
            "standalone": with_description("Whether each replica is its own rendezvous.", {"type": "boolean"}),
        }
    )


def _run_policy() -> Object:
    queue = {**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": QUEUE_IMMUTABLE}]}
    scheduling = {
        "minAvailable": with_description(
            "Number of replicas that must fit at the same time before any of them starts.", INT32
        ),
        "minResources": with_description(
            "Resources that must be free at the same time before any replica starts.",
            {"type": "object", "additionalProperties": QUANTITY},
        ),
        "priorityClass": with_description("Priority class of the group.", STRING),
        "queue": with_description("Queue of the job; immutable.", queue),
        "scheduleTimeoutSeconds": with_description("Maximum time that the group may wait for scheduling.", INT32),
    }
    fields = {
        "activeDeadlineSeconds": with_description("Maximum time that the job may be active before it fails.", INT64),
        "backoffLimit": with_description("Number of restarts after which the job fails.", INT32),
        "cleanPodPolicy": with_description(
            "Pods to delete when the job is finished: None (the default), Running or All.", STRING
        ),
        "managedBy": with_description("Controller of the job; immutable.", STRING),
        "schedulingPolicy": with_description("How the replicas are scheduled as one group.", record(scheduling)),
        "suspend": with_description(
            "Whether the job is suspended: its replicas are deleted, or not created.", {"type": "boolean"}
        ),
        "ttlSecondsAfterFinished": with_description("Time after which a finished job is deleted.", INT32),
    }
    fields["suspend"]["default"] = False
    # Upstream has no default here, so its own SDK cannot read a job without runPolicy.
    return {**record(fields), "default": {}}


def _spec() -> Object:
    replica = record(
        {
            "replicas": with_description("Number of replicas; 1 by default.", INT32),
            "restartPolicy": with_description("Always, OnFailure (the default), Never or ExitCode.", STRING),
            "template": with_description("The pods.", template()),
        }
    )
    return record(
        {
            "elasticPolicy": with_description("Elastic training: number of workers and rendezvous.", _elastic_policy()),
            "nprocPerNode": with_description("Processes per replica: auto, cpu, gpu or a number.", STRING),
            "pytorchReplicaSpecs": with_description(
                "By type: Master, Worker.", {"type": "object", "additionalProperties": replica}
            ),
            "runPolicy": with_description("Deadlines, cleanup and scheduling of the job.", _run_policy()),
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
            "spec": with_description("Desired state: the replicas of each type and their pod templates.", _spec()),
            "status": with_description("Observed state.", _status()),
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
            ANNOTATION_COLUMN,
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
