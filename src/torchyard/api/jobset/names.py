"""Names of JobSets and of the objects created for them: group, labels, annotations, actions, names of children."""

from __future__ import annotations

import hashlib

from torchyard.api.objects import Object

GROUP, VERSION, KIND = "jobset.x-k8s.io", "v1alpha2", "JobSet"
PLURAL, SINGULAR = "jobsets", "jobset"
API_VERSION = f"{GROUP}/{VERSION}"
CONTROLLER = "jobset-controller"
# The value of spec.managedBy that selects this controller; so does no value.
MANAGED_HERE = "jobset.sigs.k8s.io/jobset-controller"

_PREFIX = "jobset.sigs.k8s.io/"
JOBSET_NAME = _PREFIX + "jobset-name"
JOBSET_UID = _PREFIX + "jobset-uid"
REPLICATED_JOB_NAME = _PREFIX + "replicatedjob-name"
REPLICATED_JOB_REPLICAS = _PREFIX + "replicatedjob-replicas"
GLOBAL_REPLICAS = _PREFIX + "global-replicas"
JOB_INDEX = _PREFIX + "job-index"
JOB_KEY = _PREFIX + "job-key"
JOB_GLOBAL_INDEX = _PREFIX + "job-global-index"
GROUP_NAME = _PREFIX + "group-name"
GROUP_REPLICAS = _PREFIX + "group-replicas"
JOB_GROUP_INDEX = _PREFIX + "job-group-index"
RESTART_ATTEMPT = _PREFIX + "restart-attempt"
JOB_RESTART_ATTEMPT = _PREFIX + "job-restart-attempt"
COORDINATOR = _PREFIX + "coordinator"

# Exclusive placement: one child Job per topology domain.
_ALPHA = "alpha.jobset.sigs.k8s.io/"
EXCLUSIVE_TOPOLOGY = _ALPHA + "exclusive-topology"
NODE_SELECTOR_STRATEGY = _ALPHA + "node-selector"
NAMESPACED_JOB = _ALPHA + "namespaced-job"
NO_SCHEDULE_TAINT = _ALPHA + "no-schedule"

ALL, ANY = "All", "Any"
ANY_ORDER, IN_ORDER = "AnyOrder", "InOrder"
READY, COMPLETE = "Ready", "Complete"
RECREATE, BLOCKING_RECREATE, IN_PLACE_RESTART = "Recreate", "BlockingRecreate", "InPlaceRestart"
RESTART_STRATEGIES = (RECREATE, BLOCKING_RECREATE, IN_PLACE_RESTART)
DELETE, RETAIN = "Delete", "Retain"

FAIL_JOBSET = "FailJobSet"
RESTART_JOBSET = "RestartJobSet"
RESTART_JOBSET_FREE = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB = "RestartJob"
RESTART_JOB_FREE = "RestartJobAndIgnoreMaxRestarts"
ACTIONS = (FAIL_JOBSET, RESTART_JOBSET, RESTART_JOBSET_FREE, RESTART_JOB, RESTART_JOB_FREE)
FAILURE_REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)


def job_name(jobset: str, replicated_job: str, index: int) -> str:
    """Return the name of a child Job; its pods' host names append their completion index."""
    return f"{jobset}-{replicated_job}-{index}"


def replicas(replicated_job: Object) -> int:
    """Return the number of Jobs: 1 by default, none where a server stored a negative number."""
    return max(int(replicated_job.get("replicas", 1)), 0)


def claim_name(jobset: str, template: str) -> str:
    """Return the name of a PersistentVolumeClaim of spec.volumeClaimPolicies."""
    return f"{template}-{jobset}"


def subdomain(jobset: Object) -> str:
    """Return the name of the headless service: spec.network.subdomain, else the name of the JobSet."""
    network = jobset["spec"].get("network") or {}
    return str(network.get("subdomain") or jobset["metadata"].get("name", ""))


def coordinator_endpoint(jobset: Object) -> str:
    """Return the host name of the pod that spec.coordinator names."""
    chosen = jobset["spec"]["coordinator"]
    job = job_name(jobset["metadata"].get("name", ""), chosen["replicatedJob"], chosen.get("jobIndex") or 0)
    return f"{job}-{chosen.get('podIndex') or 0}.{subdomain(jobset)}"


def job_key(namespace: str, job: str) -> str:
    """Return the value of the label job-key: a hash that is unique in the cluster."""
    return hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest()


def is_managed_here(jobset: Object) -> bool:
    manager = (jobset.get("spec") or {}).get("managedBy")
    return manager is None or manager == MANAGED_HERE
