"""Reasons and messages of the controllers of workloads, as upstream writes them."""

from __future__ import annotations

from torchyard.api.objects import Object

DEPLOYMENT_CONTROLLER = "deployment-controller"
REPLICA_SET_CONTROLLER = "replicaset-controller"
REPLICATION_CONTROLLER = "replication-controller"
STATEFUL_SET_CONTROLLER = "statefulset-controller"
DAEMON_SET_CONTROLLER = "daemonset-controller"
DISRUPTION_CONTROLLER = "controllermanager"

# events about pods
CREATED, NOT_CREATED = "SuccessfulCreate", "FailedCreate"
DELETED, NOT_DELETED = "SuccessfulDelete", "FailedDelete"
UPDATED, NOT_UPDATED = "SuccessfulUpdate", "FailedUpdate"

# conditions
AVAILABLE, PROGRESSING, REPLICA_FAILURE = "Available", "Progressing", "ReplicaFailure"
MINIMUM_AVAILABLE = ("MinimumReplicasAvailable", "Deployment has minimum availability.")
MINIMUM_UNAVAILABLE = ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
PAUSED = ("DeploymentPaused", "Deployment is paused")
RESUMED = ("DeploymentResumed", "Deployment is resumed")
NEW_REPLICA_SET, FOUND_REPLICA_SET = "NewReplicaSetCreated", "FoundNewReplicaSet"
NEW_REPLICA_SET_AVAILABLE, REPLICA_SET_UPDATED = "NewReplicaSetAvailable", "ReplicaSetUpdated"
PROGRESS_DEADLINE_EXCEEDED, REPLICA_SET_NOT_CREATED = "ProgressDeadlineExceeded", "ReplicaSetCreateError"

SCALING = "ScalingReplicaSet"
SELECTING_ALL = "SelectingAll"


def pod_created(name: str) -> str:
    return f"Created pod: {name}"


def pod_not_created(why: str) -> str:
    return f"Error creating: {why}"


def pod_deleted(name: str) -> str:
    return f"Deleted pod: {name}"


def pod_not_deleted(why: str) -> str:
    return f"Error deleting: {why}"


def scaled(name: str, before: int, after: int) -> str:
    direction = "up" if after > before else "down"
    return f"Scaled {direction} replica set {name} from {before} to {after}"


def created_replica_set(name: str) -> str:
    return f'Created new replica set "{name}"'


def found_replica_set(name: str) -> str:
    return f'Found new replica set "{name}"'


def replica_set_not_created(name: str, why: str) -> str:
    return f'Failed to create new replica set "{name}": {why}'


def progress(deployment: str, replica_set: str | None, state: str) -> str:
    """What: `has successfully progressed`, `is progressing`, `has timed out progressing`."""
    subject = f'Deployment "{deployment}"' if replica_set is None else f'ReplicaSet "{replica_set}"'
    return f"{subject} {state}."


def selects_everything(kind: str) -> str:
    return f"This {kind} is selecting all pods. A non-empty selector is required."


def stateful_pod(verb: str, pod: str, stateful_set: str, why: str = "") -> str:
    """Verb: create, update, delete. Why: the error, if it failed."""
    subject = f"{verb} Pod {pod} in StatefulSet {stateful_set}"
    return f"{subject} failed error: {why}" if why else f"{subject} successful"


def stateful_claim(verb: str, claim: str, pod: str, stateful_set: str, why: str = "") -> str:
    if why:
        return f"{verb} Claim {claim} for Pod {pod} in StatefulSet {stateful_set} failed error: {why}"
    return f"{verb} Claim {claim} Pod {pod} in StatefulSet {stateful_set} success"


def claim_is_terminating(claim: str) -> str:
    return f"pvc {claim} is being deleted"


def failed_daemon_pod(namespace: str, pod: str, node: str) -> str:
    return f"Found failed daemon pod {namespace}/{pod} on node {node}, will try to kill it"


def succeeded_daemon_pod(namespace: str, pod: str, node: str) -> str:
    return f"Found succeeded daemon pod {namespace}/{pod} on node {node}, will try to delete it"


FAILED_DAEMON_POD, SUCCEEDED_DAEMON_POD = "FailedDaemonPod", "SucceededDaemonPod"

# PodDisruptionBudgets
DISRUPTION_ALLOWED = "DisruptionAllowed"
SUFFICIENT_PODS, INSUFFICIENT_PODS, SYNC_FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"
NO_PODS, NO_MATCHING_PODS = "NoPods", "No matching pods found"
UNMANAGED_PODS, NOT_DELETED_POD = "UnmanagedPods", "NotDeleted"
NO_EXPECTED_COUNT = "CalculateExpectedPodCountFailed"


def unmanaged_pods(selector: Object) -> str:
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {_go_selector(selector)}) were found to be unmanaged."
        " As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To"
        ' account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


def _go_selector(selector: Object) -> str:
    """A label selector as Go prints it."""
    required = "".join(f"{name}: {value}," for name, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{item['key']},Operator:{item['operator']},"
        f"Values:[{' '.join(item.get('values') or ())}],}},"
        for item in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{required}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def no_expected_count(why: str) -> str:
    return f"Failed to calculate the number of expected pods: {why}"


def pod_remains(namespace: str, budget: str) -> str:
    return f"Pod was expected by PDB {namespace}/{budget} to be deleted but it wasn't"


def no_scale(resource: str) -> str:
    return f"{resource} does not implement the scale subresource"
