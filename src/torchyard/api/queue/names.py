"""What queues and everything about them are called: group, kinds, labels and annotations, letter for letter Kueue's."""

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
QUEUE_NAME = _PREFIX + "queue-name"
PRIORITY = _PREFIX + "priority-class"
MAX_SECONDS = _PREFIX + "max-exec-time-seconds"
MIN_PARALLELISM = _PREFIX + "job-min-parallelism"
SYNC_COMPLETIONS = _PREFIX + "job-completions-equal-parallelism"
ELASTIC = _PREFIX + "elastic-job"  # and the gate on the pods of such a job
# On pods that queue by themselves.
MANAGED = _PREFIX + "managed"
POD_GROUP = _PREFIX + "pod-group-name"
POD_GROUP_SIZE = _PREFIX + "pod-group-total-count"
ADMISSION_GATE = _PREFIX + "admission"
# On workloads.
JOB_UID = _PREFIX + "job-uid"
REPLACES = _PREFIX + "workload-slice-replacement-for"
IN_USE = _PREFIX + "resource-in-use"  # a finalizer: quota is held until nothing runs any more
# Injected into the pods of an admitted job.
POD_SET = _PREFIX + "podset"
POD_LOCAL_QUEUE = _PREFIX + "local-queue-name"
POD_CLUSTER_QUEUE = _PREFIX + "cluster-queue-name"

DEFAULT_QUEUE = "default"
MAIN = "main"
PODS = "pods"

# Ours: on the queues and flavors that the one-machine plane makes by itself.
LOCAL = "torchyard.dev/local-queue"

BEST_EFFORT, STRICT = "BestEffortFIFO", "StrictFIFO"
HOLD, HOLD_AND_DRAIN, NO_STOP = "Hold", "HoldAndDrain", "None"
NEVER, LOWER, ANY, LOWER_OR_NEWER = "Never", "LowerPriority", "Any", "LowerOrNewerEqualPriority"
TRY_NEXT, MAY_STOP = "TryNextFlavor", "MayStopSearch"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"

_HASH_DIGITS, _LONGEST = 5, 253


def workload_name(kind: str, group: str, name: str, uid: str, *, generation: int | None = None) -> str:
    """`job-train-1a2b3`: the same for the same job, another for its next life, and for an elastic job's next size."""
    said = f"{kind}\n{group}\n{name}\n{uid}" + (f"\n{generation}" if generation is not None else "")
    digits = hashlib.sha1(said.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    head = f"{kind.lower()}-{name}"[: _LONGEST - _HASH_DIGITS - 1]
    return f"{head}-{digits}"


def user_queue(namespace: str) -> str:
    """The queue that shared services give to a project's namespace."""
    return f"{namespace}-user-queue"
