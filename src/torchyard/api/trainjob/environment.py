"""The variables that the plugins set in the containers of the nodes; a TrainJob must not set them itself."""

from __future__ import annotations

from torchyard.api import torchrun
from torchyard.api.trainjob import names

JAX_NUM_PROCESSES = "JAX_NUM_PROCESSES"
JAX_PROCESS_ID = "JAX_PROCESS_ID"
JAX_COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS"
DMLC_TRACKER_URI = "DMLC_TRACKER_URI"
DMLC_TRACKER_PORT = "DMLC_TRACKER_PORT"
DMLC_TASK_ID = "DMLC_TASK_ID"
DMLC_NUM_WORKER = "DMLC_NUM_WORKER"
OMPI_HOSTFILE = "OMPI_MCA_orte_default_hostfile"
OMPI_KEEP_FQDN = "OMPI_MCA_orte_keep_fqdn_hostnames"
OMPI_SLOTS = "OMPI_MCA_orte_set_default_slots"
OMPI_RSH_ARGS = "OMPI_MCA_plm_rsh_args"
STORAGE_URI = "STORAGE_URI"

RESERVED: dict[str, tuple[str, ...]] = {
    names.TORCH: (
        torchrun.NNODES,
        torchrun.NPROC_PER_NODE,
        torchrun.NODE_RANK,
        torchrun.MASTER_ADDR,
        torchrun.MASTER_PORT,
    ),
    names.MPI: (OMPI_HOSTFILE, OMPI_KEEP_FQDN, OMPI_SLOTS, OMPI_RSH_ARGS),
    names.XGBOOST: (DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID, DMLC_NUM_WORKER),
}

# Where the nodes report their progress, and the files that they need for it.
STATUS_SERVER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
STATUS_SERVER_AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
STATUS_SERVER_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - a variable's name
