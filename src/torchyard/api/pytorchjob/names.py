"""Names of PyTorchJobs and of the objects created for them: group, labels of every operator generation, annotations."""

from __future__ import annotations

GROUP, VERSION, KIND = "kubeflow.org", "v1", "PyTorchJob"
PLURAL, SINGULAR = "pytorchjobs", "pytorchjob"
API_VERSION = f"{GROUP}/{VERSION}"
CONTROLLER = "pytorchjob-controller"

MASTER, WORKER = "Master", "Worker"
# The order of replica types wherever it is visible. Upstream's is the random order of a Go map.
REPLICA_TYPES = (MASTER, WORKER)

CONTAINER = "pytorch"
PORT_NAME, PORT = "pytorchjob-port", 23456

ALWAYS, ON_FAILURE, NEVER, EXIT_CODE = "Always", "OnFailure", "Never", "ExitCode"
RESTART_POLICIES = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)
CLEAN_NONE, CLEAN_RUNNING, CLEAN_ALL = "None", "Running", "All"
CLEAN_POD_POLICIES = (CLEAN_NONE, CLEAN_RUNNING, CLEAN_ALL)

MANAGED_HERE, MANAGED_BY_MULTIKUEUE = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"
MANAGERS = (MANAGED_HERE, MANAGED_BY_MULTIKUEUE)

_PREFIX = "training.kubeflow.org/"
OPERATOR_NAME = _PREFIX + "operator-name"
JOB_NAME = _PREFIX + "job-name"
REPLICA_TYPE = _PREFIX + "replica-type"
REPLICA_INDEX = _PREFIX + "replica-index"
JOB_ROLE = _PREFIX + "job-role"
MASTER_ROLE = "master"

# By which Prometheus finds pods with metrics, by convention.
SCRAPE, SCRAPE_PORT, SCRAPE_PATH = "prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path"

# Our annotations. All are opt-in except the last one, in which the controller keeps state.
RESTART_SCOPE = "torchyard.dev/restart-scope"  # "job": one failed replica restarts all of them
WHOLE_JOB = "job"
WORKER_RANKS = "torchyard.dev/worker-ranks"  # "true": address, rank and world size for a job without a Master
INIT_CONTAINER = "torchyard.dev/init-container"  # "off": workers do not wait for the master's name
RESTARTS = "torchyard.dev/restarts"  # how many replicas were recreated, and which of them are still to be deleted


def replica_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of a replica's pod and service."""
    return f"{job}-{replica_type.lower()}-{index}".replace("/", "-")


def identity_labels(job: str, replica_type: str) -> dict[str, str]:
    """Return the labels that all pods of a replica type share; status.replicaStatuses.selector consists of them."""
    return {JOB_NAME: job, OPERATOR_NAME: CONTROLLER, REPLICA_TYPE: replica_type.lower()}


def selector_labels(job: str, replica_type: str, index: int) -> dict[str, str]:
    """Return the labels by which a replica's service selects its pod."""
    return {**identity_labels(job, replica_type), REPLICA_INDEX: str(index)}


def old_labels(labels: dict[str, str], job: str) -> dict[str, str]:
    """Return the labels of training-operator 1.3 to 1.5 and of the pytorch-operator before it.

    Manuals and scripts still select by them: `kubectl get pods -l job-name=NAME,replica-type=master`.
    """
    plain = {key.removeprefix(_PREFIX): value for key, value in labels.items() if key != OPERATOR_NAME}
    return {
        **plain,
        "group-name": GROUP,
        "controller-name": CONTROLLER,
        "pytorch-job-name": job,
        "pytorch-replica-type": labels[REPLICA_TYPE],
        "pytorch-replica-index": labels[REPLICA_INDEX],
    }


def selector_text(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))
