"""Which controllers run, in kube-controller-manager's syntax: `*`, `a,b`, `*,-a`, `-*`."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.errors import YardError

# Runs only beside a node of the plane: without one, pods are the business of another scheduler.
SCHEDULER = "scheduler"
# Not a controller: a part of `kueue` that can be disabled.
LOCAL_QUEUES = "local-queues"
# Every controller. Their modules, which `controllers` imports, are not needed to know their names.
KNOWN = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "jobset",
    "kueue",
    "local-volumes",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "pytorchjob",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    SCHEDULER,
    "service-cidr-controller",
    "serviceaccount-token-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
    "taint-eviction-controller",
    "trainjob",
)


def select_controllers(text: str, known: Iterable[str]) -> frozenset[str]:
    """The selected names: `name` or `-name` decides for that name, `*` or `-*` for all others."""
    names = list(known)
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    unknown = [entry for entry in entries if entry.lstrip("-") not in ("*", *names)]
    if unknown:
        raise YardError(
            f"--controllers names unknown controllers: {', '.join(repr(entry.lstrip('-')) for entry in unknown)}",
            hint=f"known: {', '.join(sorted(names))}",
            code="UnknownController",
        )
    everything = "*" in entries and "-*" not in entries
    return frozenset(name for name in names if name in entries or (everything and f"-{name}" not in entries))
