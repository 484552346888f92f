"""Group, kinds, labels, annotations and field values of Kueue, letter for letter."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

GROUP = "kueue.x-k8s.io"
OLD, STORED = "v1beta1", "v1beta2"
API_VERSION = f"{GROUP}/{STORED}"


class Kind(NamedTuple):
    kind: str
    plural: str
    namespaced: bool = False
    short: tuple[str, ...] = ()


FLAVOR = Kind("ResourceFlavor", "resourceflavors", short=("flavor", "flavors", "rf"))
CLUSTER_QUEUE = Kind("ClusterQueue", "clusterqueues", short=("cq",))
LOCAL_QUEUE = Kind("LocalQueue", "localqueues", True, ("queue", "queues", "lq"))
WORKLOAD = Kind("Workload", "workloads", True, ("kwl", "kueueworkload"))
PRIORITY_CLASS = Kind("WorkloadPriorityClass", "workloadpriorityclasses", short=("wpc",))
COHORT = Kind("Cohort", "cohorts", short=("co",))
CHECK = Kind("AdmissionCheck", "admissionchecks", short=("ac",))
KINDS = (FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, PRIORITY_CLASS, COHORT, CHECK)

_PREFIX = f"{GROUP}/"
# On jobs.
MULTIKUEUE = _PREFIX + "multikueue"
QUEUE_NAME = _PREFIX + "queue-name"
PRIORITY = _PREFIX + "priority-class"
MAX_SECONDS = _PREFIX + "max-exec-time-seconds"
MIN_PARALLELISM = _PREFIX + "job-min-parallelism"
SYNC_COMPLETIONS = _PREFIX + "job-completions-equal-parallelism"
PREBUILT_WORKLOAD = _PREFIX + "prebuilt-workload-name"
ELASTIC = _PREFIX + "elastic-job"  # also the scheduling gate of the pods of such a job
ADMISSION_GATED_BY = _PREFIX + "admission-gated-by"  # also on workloads
# On plain pods that are queued.
MANAGED = _PREFIX + "managed"
POD_GROUP = _PREFIX + "pod-group-name"
POD_GROUP_SIZE = _PREFIX + "pod-group-total-count"
RETRIABLE_IN_GROUP = _PREFIX + "retriable-in-group"
FAST_ADMISSION = _PREFIX + "pod-group-fast-admission"
ADMISSION_GATE = _PREFIX + "admission"
# On workloads.
JOB_UID = _PREFIX + "job-uid"
REPLACES = _PREFIX + "workload-slice-replacement-for"
IN_USE = _PREFIX + "resource-in-use"  # a finalizer: the workload holds its quota until all of its pods are gone
# Injected into the pods of an admitted job.
POD_SET = _PREFIX + "podset"
POD_LOCAL_QUEUE = _PREFIX + "local-queue-name"
POD_CLUSTER_QUEUE = _PREFIX + "cluster-queue-name"

# Whose patch of a TrainJob's runtime has what an admission adds to the pods.
PATCH_MANAGER = _PREFIX + "manager"

DEFAULT_QUEUE = "default"
MAIN = "main"
PODS = "pods"

# Our own: on the queues and flavors that the one-machine plane creates.
LOCAL = "torchyard.dev/local-queue"

BEST_EFFORT, STRICT = "BestEffortFIFO", "StrictFIFO"
HOLD, HOLD_AND_DRAIN, NO_STOP = "Hold", "HoldAndDrain", "None"
NEVER, LOWER, ANY, LOWER_OR_NEWER = "Never", "LowerPriority", "Any", "LowerOrNewerEqualPriority"
USAGE_BASED, NOT_USAGE_BASED = "UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"
TRY_NEXT, MAY_STOP = "TryNextFlavor", "MayStopSearch"
PREEMPTION_OVER_BORROWING, BORROWING_OVER_PREEMPTION = "PreemptionOverBorrowing", "BorrowingOverPreemption"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"

_HASH_DIGITS, _MAX_LENGTH = 5, 253


def workload_name(kind: str, group: str, name: str, uid: str, *, generation: int | None = None) -> str:
    """For example `job-train-1a2b3`; it differs for another job of the same name and another size of an elastic job."""
    identity = f"{kind}\n{group}\n{name}\n{uid}" + (f"\n{generation}" if generation is not None else "")
    suffix = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    prefix = f"{kind.lower()}-{name}"[: _MAX_LENGTH - _HASH_DIGITS - 1]
    return f"{prefix}-{suffix}"


def user_queue(namespace: str) -> str:
    """The LocalQueue that shared services create in a project's namespace."""
    return f"{namespace}-user-queue"
