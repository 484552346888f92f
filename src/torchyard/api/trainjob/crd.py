"""The CustomResourceDefinition of TrainJob, with upstream's rules."""

from __future__ import annotations

from functools import cache

from torchyard.api.jobset.crd import condition_schema
from torchyard.api.objects import Object
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
from torchyard.api.trainjob import names

_IMMUTABLE = cel_rule("self == oldSelf", "field is immutable")
_URI_RULE = cel_rule(
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",
    "storageUri may be empty, or it must be a valid URI (scheme://...)",
)
_MANAGER_RULE = (
    f"self in ['{names.MANAGED_HERE}', '{names.MANAGED_BY_MULTIKUEUE}']",
    f"ManagedBy must be {names.MANAGED_HERE} or {names.MANAGED_BY_MULTIKUEUE} if set",
)
_NAME_RULES = [
    {
        "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "message": "metadata.name must match RFC 1035 DNS label format",
    },
    {"rule": "size(self.metadata.name) <= 63", "message": "metadata.name must be no more than 63 characters"},
]
_COUNT: Object = {**INT32, "minimum": 0}


def text(longest: int, **more: object) -> Object:
    return {**STRING, "maxLength": longest, **more}


def _core(name: str) -> Object:
    return from_go_type(definition(f"io.k8s.api.core.v1.{name}"))


def _env() -> Object:
    return map_list(_core("EnvVar"), maxItems=128)


def _initializer(kind: str) -> Object:
    fields = {
        "env": with_description(f"Variables of the {kind} initializer.", _env()),
        "secretRef": with_description("A Secret whose keys become variables.", _core("LocalObjectReference")),
        "storageUri": with_description(f"Where the {kind} is: file://, hf:// or s3://.", {**text(2048), **_URI_RULE}),
    }
    return record(fields)


def _trainer() -> Object:
    words = {"type": "array", "items": text(1048576), "maxItems": 128, "x-kubernetes-list-type": "atomic"}
    fields = {
        "args": with_description("Arguments of the container `node`; the runtime's by default.", words),
        "command": with_description("Command of the container `node`; the runtime's by default.", words),
        "env": with_description("Variables of the container `node`, over the runtime's.", _env()),
        "image": with_description("Image of the container `node`; the runtime's by default.", text(500)),
        "numNodes": with_description("Number of nodes; the runtime's by default.", BOUNDED_INT32),
        "numProcPerNode": with_description("Processes per node; by default one per GPU or CPU.", BOUNDED_INT32),
        "resourcesPerNode": with_description(
            "Resources of the container `node`, over the runtime's.", _core("ResourceRequirements")
        ),
    }
    return {**record(fields), **_IMMUTABLE}


def _metadata() -> Object:
    return from_go_type(definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))


def _pod_patch() -> Object:
    mounts = map_list(_core("VolumeMount"), maxItems=128)
    container = record(
        {
            "env": _env(),
            "name": text(253, minLength=1),
            "securityContext": _core("SecurityContext"),
            "volumeMounts": mounts,
        },
        "name",
    )
    containers = {**map_list(container, maxItems=64), **_IMMUTABLE}
    tolerations = {"type": "array", "items": _core("Toleration"), "maxItems": 128, "x-kubernetes-list-type": "atomic"}
    return record(
        {
            "affinity": _core("Affinity"),
            "containers": containers,
            "imagePullSecrets": {**map_list(_core("LocalObjectReference"), maxItems=64), **_IMMUTABLE},
            "initContainers": containers,
            "nodeSelector": {"type": "object", "additionalProperties": STRING},
            "schedulingGates": map_list(_core("PodSchedulingGate"), maxItems=16),
            "securityContext": {**_core("PodSecurityContext"), **_IMMUTABLE},
            "serviceAccountName": {**text(253), **_IMMUTABLE},
            "terminationGracePeriodSeconds": {**INT64, "minimum": 0, **_IMMUTABLE},
            "tolerations": tolerations,
            "volumes": {**map_list(_core("Volume"), maxItems=128), **_IMMUTABLE},
        }
    )


def _patch() -> Object:
    pods = record({"metadata": _metadata(), "spec": _pod_patch()})
    job = record({"metadata": _metadata(), "spec": record({"template": pods})})
    replicated_job = record({"name": text(253, minLength=1), "template": job}, "name")
    jobset = record({"replicatedJobs": map_list(replicated_job, maxItems=100)})
    template = record({"metadata": _metadata(), "spec": jobset})
    manager = {**text(253, minLength=1), **_IMMUTABLE}
    fields = {
        "manager": with_description("Who wrote the patch: a path with a domain, such as example.com/me.", manager),
        "time": with_description("When the patch was last changed; set by the server.", TIME),
        "trainingRuntimeSpec": with_description(
            "A strategic merge patch of the runtime's spec.", record({"template": template})
        ),
    }
    return record(fields, "manager")


def _spec() -> Object:
    reference = record(
        {
            "apiGroup": text(253, default=names.GROUP),
            "kind": text(253, default=names.CLUSTER_RUNTIME_KIND),
            "name": text(253, minLength=1),
        },
        "name",
    )
    rules = [dict(zip(("rule", "message"), _MANAGER_RULE, strict=True)), *_IMMUTABLE["x-kubernetes-validations"]]
    manager = {**text(253, default=names.MANAGED_HERE), "x-kubernetes-validations": rules}
    initializers = record({kind: _initializer(kind) for kind in names.INITIALIZERS})
    fields = {
        "activeDeadlineSeconds": with_description(
            "Maximum time that the job may be active before it fails.", {**INT64, "minimum": 1, **_IMMUTABLE}
        ),
        "initializer": with_description("What is fetched before the training.", {**initializers, **_IMMUTABLE}),
        "managedBy": with_description("Controller of the job; immutable.", manager),
        "runtimePatches": with_description(
            "Changes of the runtime for this job, by manager.", map_list(_patch(), "manager", maxItems=16)
        ),
        "runtimeRef": with_description("The runtime that the job runs in.", {**reference, **_IMMUTABLE}),
        "suspend": with_description("Whether the job is suspended.", {**BOOLEAN, "default": False}),
        "trainer": with_description("The training itself.", _trainer()),
    }
    return record(fields, "runtimeRef")


def _status() -> Object:
    counts = ("active", "failed", "ready", "succeeded", "suspended")
    jobs = record({**dict.fromkeys(counts, _COUNT), "name": text(253, minLength=1)}, *sorted((*counts, "name")))
    short = text(64, minLength=1)
    metrics = {"type": "array", "items": record({"name": short, "value": short}, "name", "value"), "maxItems": 256}
    progress = record(
        {
            "estimatedRemainingSeconds": _COUNT,
            "lastUpdatedTime": TIME,
            "metrics": {**metrics, "x-kubernetes-list-type": "atomic"},
            "progressPercentage": {**_COUNT, "maximum": 100},
        }
    )
    updated = cel_rule("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present")
    fields = {
        "conditions": map_list(condition_schema(), "type", maxItems=8),
        "jobsStatus": with_description("Counts of each replicated job.", map_list(jobs, maxItems=100)),
        # Ours: `trainerStatus` for people. A column cannot join fields.
        "progress": with_description("Progress as a text: percent, time left, loss.", STRING),
        # Ours: the deadline counts from here. The conditions do not tell, because a running job has none.
        "resumeTime": with_description("When the job was resumed the last time.", TIME),
        # Ours. Upstream's column shows the last condition, and a running job has none.
        "state": with_description("Suspended, Created, Running, Complete or Failed.", STRING),
        "trainerStatus": with_description("Progress, as the training reports it.", {**progress, **updated}),
    }
    return {**record(fields), "minProperties": 1}


def custom_resource(kind: str, plural: str, schema: Object, *, namespaced: bool = True, **version: object) -> Object:
    kinds = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    entry = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": kinds,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [entry],
        },
    }


@cache
def definition_object() -> Object:
    """Return the CustomResourceDefinition that is installed. The object is shared: copy it before changing it."""
    fields = {
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": {"type": "object"},
        "spec": with_description("Desired state: the runtime and what the job changes of it.", _spec()),
        "status": with_description("Observed state.", _status()),
    }
    schema = {**with_description("A training in a runtime.", record(fields)), "x-kubernetes-validations": _NAME_RULES}
    columns = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Progress", "type": "string", "jsonPath": ".status.progress"},
    ]
    return custom_resource(
        names.KIND, names.PLURAL, schema, additionalPrinterColumns=columns, subresources={"status": {}}
    )
