"""Names of TrainJobs, their runtimes and the objects created for them."""

from __future__ import annotations

import re

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND, PLURAL, SINGULAR = "TrainJob", "trainjobs", "trainjob"
RUNTIME_KIND, RUNTIME_PLURAL = "TrainingRuntime", "trainingruntimes"
CLUSTER_RUNTIME_KIND, CLUSTER_RUNTIME_PLURAL = "ClusterTrainingRuntime", "clustertrainingruntimes"
RUNTIME_PLURALS = {RUNTIME_KIND: RUNTIME_PLURAL, CLUSTER_RUNTIME_KIND: CLUSTER_RUNTIME_PLURAL}
CONTROLLER = "trainjob-controller"

MANAGED_HERE, MANAGED_BY_MULTIKUEUE = f"{GROUP}/trainjob-controller", "kueue.x-k8s.io/multikueue"
# The SDK ignores runtimes without this label.
FRAMEWORK = f"{GROUP}/framework"
SUPPORT, DEPRECATED = f"{GROUP}/support", "deprecated"
# A label of a replicated job's Job template: which step of the training its pods are.
ANCESTOR = f"{GROUP}/trainjob-ancestor-step"
TRAINER, DATASET_INITIALIZER, MODEL_INITIALIZER = "trainer", "dataset-initializer", "model-initializer"
INITIALIZERS = {"dataset": DATASET_INITIALIZER, "model": MODEL_INITIALIZER}
INITIALIZER_VOLUME = "initializer"

NODE, LAUNCHER = "node", "launcher"
# The container that each step needs.
CONTAINERS = {TRAINER: NODE, DATASET_INITIALIZER: DATASET_INITIALIZER, MODEL_INITIALIZER: MODEL_INITIALIZER}
PORT = 29500
COORDINATOR_PORT = 29501  # torchrun may use the other one in the same pod
COORDINATOR_PORT_NAME = "coordinator"

# The plugins of spec.mlPolicy; without one the policy is plain.
TORCH, MPI, JAX, XGBOOST, FLUX = "torch", "mpi", "jax", "xgboost", "flux"
POLICIES = (TORCH, MPI, JAX, XGBOOST, FLUX)

SNAPSHOT_KEY = "runtime"
HOSTFILE_KEY = "hostfile"
SNAPSHOT_LABEL = "torchyard.dev/runtime-snapshot"  # ours, of the ConfigMaps with runtimes

# Our annotations, of a TrainJob.
# "1:4": minimum and maximum number of nodes. Of a job, whose maximum is numNodes; or of a runtime, for all its jobs.
ELASTIC = "torchyard.dev/elastic"
# Of a job or a runtime: "c10d", torchrun's rendezvous (default), or "torchyard", the coordinator of torchyard.elastic.
RDZV_BACKEND = "torchyard.dev/rdzv-backend"
# Of a running job with the coordinator: the number of nodes that it is to have instead of numNodes.
RESIZED = "torchyard.dev/num-nodes"
# Ours, of the JobSet of such a job: "1:2:4", the smallest number of nodes, numNodes, and the largest.
ELASTIC_NODES = "torchyard.dev/elastic-nodes"
TTL = "torchyard.dev/ttl-seconds-after-finished"
# Nothing that decoding the path would change: the token is checked for the path as it was sent.
_status_path = re.compile(
    f"/apis/{re.escape(API_VERSION)}/namespaces/([a-z0-9-]+)/{PLURAL}/([a-z0-9.-]+)/status"
).fullmatch


def snapshot_name(job: str) -> str:
    return f"{job}-runtime-snapshot"


def ssh_secret_name(job: str) -> str:
    return f"{job}-mpi-ssh-auth"


def hostfile_name(job: str) -> str:
    return f"{job}-mpi-hostfile"


def tls_config_name(job: str) -> str:
    return f"{job}-tls-config"


def status_audience(namespace: str, job: str) -> str:
    """The audience of the token with which the nodes of a job report their progress."""
    return f"{API_VERSION}/namespaces/{namespace}/{PLURAL}/{job}/status"


def status_path(namespace: str, job: str) -> str:
    return f"/apis/{status_audience(namespace, job)}"


def reported_job(path: str) -> tuple[str, str] | None:
    """Namespace and name of the TrainJob that a POST to this path reports about; None for other paths."""
    parts = _status_path(path)
    return (parts[1], parts[2]) if parts else None


def runtime_reference(job: Object) -> Object:
    """The runtime of a job, with the defaults of the schema. Values of wrong types, which it rejects, are left out."""
    spec = job.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    return {"apiGroup": GROUP, "kind": CLUSTER_RUNTIME_KIND, **(reference if isinstance(reference, dict) else {})}


def runtime_key(job: Object) -> str:
    reference = runtime_reference(job)
    return f"{reference['kind']}.{reference['apiGroup']}"


def is_supported_runtime(job: Object) -> bool:
    reference = runtime_reference(job)
    return reference["apiGroup"] == GROUP and reference["kind"] in RUNTIME_PLURALS


def is_managed_here(job: Object) -> bool:
    return (job.get("spec") or {}).get("managedBy") in (None, MANAGED_HERE)


def owner_reference(job: Object) -> Object:
    # A TrainJob that is only converted has no uid.
    return controller_reference({"metadata": {"uid": "", **job["metadata"]}}, API_VERSION, KIND)


def time_to_live(job: Object) -> int | None:
    """The seconds that a finished job stays; None: for ever."""
    text = str((job["metadata"].get("annotations") or {}).get(TTL, ""))
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if is_number and int(text) < 2**31 else None
