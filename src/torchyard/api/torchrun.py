"""The environment variables that torchrun reads (its prefix is PET_), which PyTorchJobs and TrainJobs set."""

from __future__ import annotations

# Rendezvous backends: torchrun's own, and the coordinator of torchyard.elastic.
C10D, TORCHYARD = "c10d", "torchyard"

NNODES = "PET_NNODES"
NPROC_PER_NODE = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
MASTER_ADDR = "PET_MASTER_ADDR"
MASTER_PORT = "PET_MASTER_PORT"
RDZV_ENDPOINT = "PET_RDZV_ENDPOINT"
RDZV_BACKEND = "PET_RDZV_BACKEND"
RDZV_ID = "PET_RDZV_ID"
RDZV_CONF = "PET_RDZV_CONF"
MAX_RESTARTS = "PET_MAX_RESTARTS"
STANDALONE = "PET_STANDALONE"
AUTO = "auto"  # torchrun: as many processes as the node has GPUs, else CPUs
