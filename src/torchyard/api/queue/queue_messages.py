"""The condition Active of ClusterQueues, LocalQueues and AdmissionChecks: its reasons and Kueue's messages."""

from __future__ import annotations

from collections.abc import Iterable

ACTIVE = "Active"
REASON_READY = "Ready"
REASON_STOPPED = "Stopped"
REASON_TERMINATING = "Terminating"
REASON_FLAVOR_NOT_FOUND = "FlavorNotFound"
REASON_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
REASON_CHECK_INACTIVE = "AdmissionCheckInactive"
REASON_COHORT_CYCLE = "CohortCycle"
REASON_CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"
REASON_CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
CLUSTER_QUEUE_IS_TERMINATING = "Can't admit new workloads; clusterQueue is terminating"
CLUSTER_QUEUE_IS_STOPPED = "is stopped"
CAN_ADMIT = "Can admit new workloads"
CAN_SUBMIT = "Can submit new workloads to localQueue"
LOCAL_STOPPED = "LocalQueue is stopped"
CANNOT_SUBMIT = "Can't submit new workloads to clusterQueue"
NO_NAMESPACE_SELECTED = (
    "spec.namespaceSelector is null: no namespace may use this queue; use {} to select all namespaces"
)

# Events of queues.
COMPONENT_QUEUES = "torchyard-queues"
EVENT_FIELD_IGNORED = "FieldIgnored"
# The queues that a plane makes for itself.
COMPONENT_LOCAL_QUEUES = "torchyard-local-queues"
EVENT_LOCAL_QUEUE_CREATED = "LocalQueueCreated"


def cannot_admit(why: str) -> str:
    return f"Can't admit new workloads: {why}."


def missing_flavors(flavors: Iterable[str]) -> str:
    return f"references missing ResourceFlavor(s): {','.join(flavors)}"


def missing_checks(checks: Iterable[str]) -> str:
    return f"references missing AdmissionCheck(s): {','.join(checks)}"


def inactive_checks(checks: Iterable[str]) -> str:
    return f"references inactive AdmissionCheck(s): {','.join(checks)}"


def cohort_cycle(cohorts: Iterable[str]) -> str:
    return f"the cohorts {' -> '.join(cohorts)} form a cycle; give one of them another parentName"


def local_queue_created(kind: str, name: str) -> str:
    return f"created {kind} {name} for this machine; `yard up --no-local-queues` turns this off"
