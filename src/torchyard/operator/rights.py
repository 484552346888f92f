"""What the operator may do, once: its role is made of this, and at the start it asks for exactly this."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.queue import names as queues
from torchyard.controllers.pytorchjob import groups_of

_READ = ("get", "list", "watch")


class Right(NamedTuple):
    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()  # only objects of these names


def job_rights(gang_scheduler: str = "") -> list[Right]:
    """In the namespaces whose jobs are looked after."""
    rights = [
        Right(names.GROUP, names.PLURAL, (*_READ, "patch", "delete")),
        Right(names.GROUP, f"{names.PLURAL}/status", ("update", "patch")),
        # Owner references that block deletion ask for this where the plugin OwnerReferencesPermissionEnforcement is on.
        Right(names.GROUP, f"{names.PLURAL}/finalizers", ("update",)),
        Right("", "pods", (*_READ, "create", "patch", "delete")),
        Right("", "services", (*_READ, "create", "delete")),
        Right("", "events", ("list", "create", "patch")),  # what was told before is counted on
        Right("autoscaling", "horizontalpodautoscalers", (*_READ, "create", "update", "delete")),
    ]
    if gang_scheduler:
        groups = groups_of(gang_scheduler)
        rights.append(Right(groups.group, groups.plural, (*_READ, "create", "update", "delete")))
    return rights


def webhook_rights(validating: str, mutating: str) -> list[Right]:
    """To put the authority of its own certificates into its own webhooks, and no others."""
    group = "admissionregistration.k8s.io"
    return [
        Right(group, "validatingwebhookconfigurations", ("get", "patch"), (validating,)),
        Right(group, "mutatingwebhookconfigurations", ("get", "patch"), (mutating,)),
    ]


KUEUE_CONFIGURATION = "kueue-manager-config"
# To see which way Kueue works with jobs here.
LOOK_FOR_KUEUE = [
    Right("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ("list",)),
    Right("", "configmaps", ("get",), (KUEUE_CONFIGURATION,)),
]


def queue_rights() -> list[Right]:
    """To make the workloads of jobs where Kueue leaves that to us."""
    cluster = (queues.FLAVOR, queues.CLUSTER_QUEUE, queues.COHORT, queues.CHECK, queues.PRIORITY_CLASS)
    return [
        # patch: nobody waits for us to delete one whose job is gone; delete: one that its job has outgrown.
        Right(queues.GROUP, queues.WORKLOAD.plural, (*_READ, "create", "update", "patch", "delete")),
        Right(queues.GROUP, f"{queues.WORKLOAD.plural}/status", ("patch",)),
        Right(queues.GROUP, queues.LOCAL_QUEUE.plural, ("list", "watch")),
        *(Right(queues.GROUP, kind.plural, ("list", "watch")) for kind in cluster),
        Right("scheduling.k8s.io", "priorityclasses", ("list", "watch")),
        Right("", "namespaces", ("list", "watch")),
    ]


def own_rights(lease: str, secret: str) -> list[Right]:
    """In the operator's own namespace: who leads, and the webhook's certificates."""
    return [
        Right("coordination.k8s.io", "leases", ("create",)),
        Right("coordination.k8s.io", "leases", ("get", "update"), (lease,)),
        Right("", "secrets", ("create",)),
        Right("", "secrets", ("get", "update"), (secret,)),
    ]


def rule(right: Right) -> Object:
    """As a rule of a Role or ClusterRole."""
    made: Object = {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
    return {**made, "resourceNames": list(right.names)} if right.names else made
