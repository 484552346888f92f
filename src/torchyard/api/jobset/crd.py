"""The CustomResourceDefinition of JobSet, with upstream's rules. Job and claim types come from the built-in kinds."""

from __future__ import annotations

from functools import cache

from torchyard.api.jobset import names
from torchyard.api.objects import Object
from torchyard.api.progress import ANNOTATION_COLUMN
from torchyard.api.schema.builtin import definition
from torchyard.api.schema.structural import (
    BOOLEAN,
    BOUNDED_INT32,
    INT32,
    INT64,
    STRING,
    TIME,
    cel_rule,
    from_go_type,
    map_list,
    record,
    with_description,
)

CRD_NAME = f"{names.PLURAL}.{names.GROUP}"
_INTEGER: Object = {"type": "integer"}
_LIST: Object = {"type": "array", "items": STRING}
_ATOMIC_LIST: Object = {**_LIST, "x-kubernetes-list-type": "atomic"}
_COUNT: Object = {**BOUNDED_INT32, "minimum": 0}
_START_ORDER_RULE = (
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' "
    "&& self.replicatedJobs.exists(x, has(x.dependsOn)))"
)
_NO_NAMESPACE_RULE = "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)"


_IMMUTABLE = cel_rule("self == oldSelf", "Value is immutable")


def _enum(*values: str, **extra: object) -> Object:
    return {**STRING, "enum": list(values), **extra}


def _replicated_job() -> Object:
    dependency = record({"name": STRING, "status": _enum(names.READY, names.COMPLETE)}, "name", "status")
    return record(
        {
            "dependsOn": with_description(
                "Earlier replicated jobs that must be Ready or Complete before this one is created; immutable.",
                {**map_list(dependency, maxItems=5), **_IMMUTABLE},
            ),
            "groupName": with_description("Group of this replicated job.", {**STRING, "default": "default"}),
            "name": with_description("Name; the child Jobs are called <jobset>-<name>-<index>.", STRING),
            "replicas": with_description("Number of Jobs; 1 by default.", {**BOUNDED_INT32, "default": 1}),
            "template": with_description("The Jobs.", from_go_type(definition("io.k8s.api.batch.v1.JobTemplateSpec"))),
        },
        "name",
        "template",
    )


def _failure_policy() -> Object:
    rule = record(
        {
            "action": with_description("What to do when the rule matches.", _enum(*names.ACTIONS)),
            "name": with_description("Name of the rule; failurePolicyRule<index> by default.", STRING),
            "onJobFailureMessagePatterns": with_description(
                "Regular expressions; the message of the failed Job must match one. Empty: any message.", _LIST
            ),
            "onJobFailureReasons": with_description("Reasons of the failed Job. Empty: any reason.", _LIST),
            "targetReplicatedJobs": with_description("Replicated jobs of the rule. Empty: all.", _ATOMIC_LIST),
        },
        "action",
        "name",
    )
    fields = {
        "maxRestarts": with_description("Number of restarts after which the JobSet fails.", BOUNDED_INT32),
        "restartStrategy": with_description(
            "How Jobs are recreated: each when its predecessor is gone (Recreate), or all when all are gone"
            " (BlockingRecreate).",
            _enum(*names.RESTART_STRATEGIES, default=names.RECREATE),
        ),
        "rules": with_description("Rules in order; the first that matches decides.", {"type": "array", "items": rule}),
    }
    return {**record(fields), **_IMMUTABLE}


def _volume_claim_policies() -> Object:
    claim = from_go_type(definition("io.k8s.api.core.v1.PersistentVolumeClaim"))
    templates = {"type": "array", "items": claim, "maxItems": 50, "x-kubernetes-list-type": "atomic"}
    retention = record({"whenDeleted": _enum(names.DELETE, names.RETAIN, default=names.DELETE)})
    policy = {
        **record(
            {
                "retentionPolicy": with_description(
                    "What happens to the claims when the JobSet is deleted.", retention
                ),
                "templates": with_description("The claims; each is mounted by a container.", templates),
            }
        ),
        **cel_rule(_NO_NAMESPACE_RULE, "namespace cannot be set for VolumeClaimPolicies templates"),
    }
    return {"type": "array", "items": policy, "maxItems": 50, "x-kubernetes-list-type": "atomic", **_IMMUTABLE}


def spec_schema() -> Object:
    """The schema of a JobSet's spec, which runtimes of TrainJobs contain."""
    network = record({"enableDNSHostnames": BOOLEAN, "publishNotReadyAddresses": BOOLEAN, "subdomain": STRING})
    coordinator = record({"jobIndex": _INTEGER, "podIndex": _INTEGER, "replicatedJob": STRING}, "replicatedJob")
    success = record({"operator": _enum(names.ALL, names.ANY), "targetReplicatedJobs": _ATOMIC_LIST}, "operator")
    startup = record({"startupPolicyOrder": _enum(names.ANY_ORDER, names.IN_ORDER)}, "startupPolicyOrder")
    fields = {
        "coordinator": with_description("The pod whose host name every Job and pod gets as a label.", coordinator),
        "failurePolicy": with_description(
            "What to do when a Job fails; without it the JobSet fails.", _failure_policy()
        ),
        "managedBy": with_description("Controller of the JobSet; immutable.", STRING),
        "network": with_description("Host names of the pods and their headless service.", {**network, **_IMMUTABLE}),
        "replicatedJobs": with_description("Groups of identical Jobs.", map_list(_replicated_job())),
        "startupPolicy": with_description(
            "Order in which replicated jobs start. Deprecated: use dependsOn.", {**startup, **_IMMUTABLE}
        ),
        "successPolicy": with_description(
            "Which Jobs must succeed for the JobSet to succeed; all by default.", {**success, **_IMMUTABLE}
        ),
        "suspend": with_description("Whether the Jobs are suspended.", BOOLEAN),
        "ttlSecondsAfterFinished": with_description("Time after which a finished JobSet is deleted.", _COUNT),
        "volumeClaimPolicies": with_description(
            "Volume claims that are created with the JobSet and shared by its pods.", _volume_claim_policies()
        ),
    }
    return {**record(fields), **cel_rule(_START_ORDER_RULE, "StartupPolicy and DependsOn APIs are mutually exclusive")}


def condition_schema() -> Object:
    label = (
        r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
    )
    reason = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    return record(
        {
            "lastTransitionTime": TIME,
            "message": {**STRING, "maxLength": 32768},
            "observedGeneration": {**INT64, "minimum": 0},
            "reason": {**STRING, "maxLength": 1024, "minLength": 1, "pattern": reason},
            "status": _enum("True", "False", "Unknown"),
            "type": {**STRING, "maxLength": 316, "pattern": f"^{label}$"},
        },
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
    )


def _status() -> Object:
    restarts = {"type": "array", "items": INT32, "maxItems": 1024, "x-kubernetes-list-type": "atomic"}
    replicated_job = record(
        {
            "active": INT32,
            "failed": INT32,
            "jobRestarts": restarts,
            "jobRestartsCountTowardsMax": restarts,
            "name": STRING,
            "ready": INT32,
            "succeeded": INT32,
            "suspended": INT32,
        },
        "active",
        "failed",
        "name",
        "ready",
        "succeeded",
        "suspended",
    )
    return record(
        {
            "conditions": map_list(condition_schema(), "type"),
            "currentInPlaceRestartAttempt": _COUNT,
            "previousInPlaceRestartAttempt": _COUNT,
            "replicatedJobsStatus": map_list(replicated_job),
            "restarts": INT32,
            "restartsCountTowardsMax": INT32,
            "terminalState": STRING,
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
            "spec": with_description("Desired state: the replicated jobs and the policies for them.", spec_schema()),
            "status": with_description("Observed state.", _status()),
        }
    )
    columns = {
        "TerminalState": ("string", ".status.terminalState"),
        "Restarts": ("string", ".status.restarts"),
        "Completed": ("string", '.status.conditions[?(@.type=="Completed")].status'),
        "Suspended": ("string", ".spec.suspend"),
        "Age": ("date", ".metadata.creationTimestamp"),
    }
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": with_description("A group of Jobs that run as one workload.", schema)},
        "additionalPrinterColumns": [
            *({"name": name, "type": kind, "jsonPath": path} for name, (kind, path) in columns.items()),
            ANNOTATION_COLUMN,
        ],
        "subresources": {"status": {}},
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
