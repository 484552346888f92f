"""The operator's permissions: its roles are built from them, and at the start it checks exactly these."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.jobset import names as jobset_names
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.queue import names as queues
from torchyard.api.trainjob import names as trainjobs
from torchyard.controllers.pytorchjob import pod_group_resource

_READ = ("get", "list", "watch")
_WEBHOOK_GROUP = "admissionregistration.k8s.io"


class Permission(NamedTuple):
    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()  # only objects of these names


def job_permissions(gang_scheduler: str = "") -> list[Permission]:
    """In the namespaces whose jobs are managed."""
    rights = [
        Permission(names.GROUP, names.PLURAL, (*_READ, "patch", "delete")),
        Permission(names.GROUP, f"{names.PLURAL}/status", ("update", "patch")),
        # blockOwnerDeletion requires this where the admission plugin OwnerReferencesPermissionEnforcement is on.
        Permission(names.GROUP, f"{names.PLURAL}/finalizers", ("update",)),
        Permission("", "pods", (*_READ, "create", "patch", "delete")),
        Permission("", "services", (*_READ, "create", "delete")),
        # the token of a job of the elastic runtime
        Permission("", "secrets", ("create",)),
        # list: a repeated event increments the count of the existing one
        Permission("", "events", ("list", "create", "patch")),
        Permission("autoscaling", "horizontalpodautoscalers", (*_READ, "create", "update", "delete")),
    ]
    if gang_scheduler:
        groups = pod_group_resource(gang_scheduler)
        rights.append(Permission(groups.group, groups.plural, (*_READ, "create", "update", "delete")))
    return rights


def jobset_permissions() -> list[Permission]:
    """In the namespaces whose JobSets are managed, besides those of `job_permissions`."""
    return [
        Permission(jobset_names.GROUP, jobset_names.PLURAL, (*_READ, "delete")),
        Permission(jobset_names.GROUP, f"{jobset_names.PLURAL}/status", ("update",)),
        Permission(jobset_names.GROUP, f"{jobset_names.PLURAL}/finalizers", ("update",)),
        Permission("batch", "jobs", (*_READ, "create", "update", "delete")),
        # a Job that is resumed loses its start time, so that its pod template may change
        Permission("batch", "jobs/status", ("update",)),
        Permission("", "persistentvolumeclaims", (*_READ, "create")),
    ]


def trainjob_permissions() -> list[Permission]:
    """In the namespaces whose TrainJobs are managed, besides those of `job_permissions`."""
    return [
        Permission(trainjobs.GROUP, trainjobs.PLURAL, (*_READ, "delete")),
        Permission(trainjobs.GROUP, f"{trainjobs.PLURAL}/status", ("patch",)),
        Permission(trainjobs.GROUP, f"{trainjobs.PLURAL}/finalizers", ("update",)),
        Permission(trainjobs.GROUP, trainjobs.RUNTIME_PLURAL, ("get",)),
        Permission(jobset_names.GROUP, jobset_names.PLURAL, (*_READ, "create", "patch", "delete")),
        # the snapshot of the runtime, and the hostfile of MPI
        Permission("", "configmaps", ("get", "create", "patch")),
        # the number of nodes of an elastic job
        Permission("batch", "jobs", ("get", "patch")),
        # the end of a failed node's log
        Permission("", "pods/log", ("get",)),
        *(
            Permission(group, "podgroups", ("get", "create", "patch"))
            for group in ("scheduling.x-k8s.io", "scheduling.volcano.sh")
        ),
    ]


def progress_permissions(*, jobsets: bool = True) -> list[Permission]:
    """To write the progress of jobs and JobSets, besides what `job_permissions` and the others grant."""
    rights = [Permission("batch", "jobs", ("get", "patch"))]
    if jobsets:
        rights.append(Permission(jobset_names.GROUP, jobset_names.PLURAL, ("get", "patch")))
    return rights


# To measure what pods use.
USAGE_PERMISSIONS = [Permission("metrics.k8s.io", "pods", ("list",))]
# To read what programs print.
LOG_PERMISSIONS = [Permission("", "pods/log", ("get",))]
# To check the tokens of pods that report.
TOKEN_REVIEWS = [Permission("authentication.k8s.io", "tokenreviews", ("create",))]
# Runtimes of the cluster: read for every job, and created with the installation.
RUNTIME_PERMISSIONS = [Permission(trainjobs.GROUP, trainjobs.CLUSTER_RUNTIME_PLURAL, ("get", "create"))]
# The webhooks of upstream's Trainer, by which a cluster with it is recognized.
UPSTREAM_TRAINER_WEBHOOKS = "validator.trainer.kubeflow.org"
TRAINER_DETECTION = [
    Permission(_WEBHOOK_GROUP, "validatingwebhookconfigurations", ("get",), (UPSTREAM_TRAINER_WEBHOOKS,))
]


def webhook_permissions(validating: str, *mutating: str) -> list[Permission]:
    """To put its CA into its own webhooks, and no others."""
    rights = [Permission(_WEBHOOK_GROUP, "validatingwebhookconfigurations", ("get", "patch"), (validating,))]
    return rights + [
        Permission(_WEBHOOK_GROUP, "mutatingwebhookconfigurations", ("get", "patch"), (name,)) for name in mutating
    ]


# The webhooks of upstream's JobSet manager, by which a cluster with it is recognized.
UPSTREAM_JOBSET_WEBHOOKS = "jobset-validating-webhook-configuration"
JOBSET_DETECTION = [
    Permission(_WEBHOOK_GROUP, "validatingwebhookconfigurations", ("get",), (UPSTREAM_JOBSET_WEBHOOKS,))
]


KUEUE_CONFIGURATION = "kueue-manager-config"
# To detect how Kueue handles PyTorchJobs on this cluster.
KUEUE_DETECTION = [
    Permission(_WEBHOOK_GROUP, "mutatingwebhookconfigurations", ("list",)),
    Permission("", "configmaps", ("get",), (KUEUE_CONFIGURATION,)),
]


def queue_permissions() -> list[Permission]:
    """To create the workloads of jobs where Kueue leaves that to the operator."""
    cluster = (queues.FLAVOR, queues.CLUSTER_QUEUE, queues.COHORT, queues.CHECK, queues.PRIORITY_CLASS)
    return [
        # patch: to release a workload whose job is gone; delete: one that no longer matches its job.
        Permission(queues.GROUP, queues.WORKLOAD.plural, (*_READ, "create", "update", "patch", "delete")),
        Permission(queues.GROUP, f"{queues.WORKLOAD.plural}/status", ("patch",)),
        Permission(queues.GROUP, queues.LOCAL_QUEUE.plural, ("list", "watch")),
        *(Permission(queues.GROUP, kind.plural, ("list", "watch")) for kind in cluster),
        Permission("scheduling.k8s.io", "priorityclasses", ("list", "watch")),
        Permission("", "namespaces", ("list", "watch")),
    ]


def own_namespace_permissions(lease: str, secret: str) -> list[Permission]:
    """In the operator's own namespace: the lease and the webhook's certificates."""
    return [
        Permission("coordination.k8s.io", "leases", ("create",)),
        Permission("coordination.k8s.io", "leases", ("get", "update"), (lease,)),
        Permission("", "secrets", ("create",)),
        Permission("", "secrets", ("get", "update"), (secret,)),
    ]


def policy_rule(permission: Permission) -> Object:
    """A rule of a Role or ClusterRole."""
    rule: Object = {
        "apiGroups": [permission.group],
        "resources": [permission.resource],
        "verbs": list(permission.verbs),
    }
    return {**rule, "resourceNames": list(permission.names)} if permission.names else rule
