"""What the operator may do, once: its role is made of this, and at the start it asks for exactly this."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchyard.api.pytorchjob import names

Object = dict[str, Any]
_READ = ("get", "list", "watch")


class Right(NamedTuple):
    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()  # only objects of these names


def cluster_rights(gang_scheduler: str = "") -> list[Right]:
    """In the namespaces whose jobs are looked after."""
    rights = [
        Right(names.GROUP, names.PLURAL, (*_READ, "patch", "delete")),
        Right(names.GROUP, f"{names.PLURAL}/status", ("update", "patch")),
        # Owner references that block deletion ask for this where the plugin OwnerReferencesPermissionEnforcement is on.
        Right(names.GROUP, f"{names.PLURAL}/finalizers", ("update",)),
        Right("", "pods", (*_READ, "create", "patch", "delete")),
        Right("", "services", (*_READ, "create", "delete")),
        Right("", "events", ("list", "create", "patch")),
        Right("autoscaling", "horizontalpodautoscalers", (*_READ, "create", "update", "delete")),
    ]
    if gang_scheduler:
        group = "scheduling.volcano.sh" if gang_scheduler == "volcano" else "scheduling.x-k8s.io"
        rights.append(Right(group, "podgroups", (*_READ, "create", "update", "delete")))
    return rights


def webhook_rights(webhook: str) -> list[Right]:
    """To put the authority of its own certificates into its own webhook, and no other."""
    return [
        Right("admissionregistration.k8s.io", "validatingwebhookconfigurations", ("get", "patch"), (webhook,)),
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
