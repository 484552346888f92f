"""The variables that the ML policies torch, jax and xgboost set in the container `node`."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api import quantity, torchrun
from torchyard.api.objects import Object
from torchyard.api.trainjob import environment, names
from torchyard.core.trainjob.elastic import INDEX_FIELD


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What the variables are computed from."""

    nodes: int
    address: str  # the host name of the first node
    resources: Object  # the job's of each node, else the runtime's of the container `node`
    processes: int | None = None  # per node, if the job says so
    elastic: int | None = None  # the smallest number of nodes with which the training goes on


def policy_environment(policy: Object, training: TrainingParameters) -> list[Object]:
    """The variables of the policy; none for plain runtimes and for mpi, whose are in `mpi`."""
    if names.TORCH in policy:
        return torch_environment(training)
    if names.JAX in policy:
        return _jax(training)
    return _xgboost(training) if names.XGBOOST in policy else []


def torch_environment(training: TrainingParameters) -> list[Object]:
    nodes = str(training.nodes)
    if training.elastic is not None:
        # With more than there are pods, torchrun would wait for them.
        nodes = f"{min(training.elastic, training.nodes)}:{training.nodes}"
    variables = [
        _value(torchrun.NNODES, nodes),
        _value(torchrun.NPROC_PER_NODE, processes_per_node(training)),
    ]
    if training.elastic is not None:
        # torchrun's own rendezvous counts the nodes; it runs beside the first one.
        return [
            *variables,
            _value(torchrun.RDZV_BACKEND, "c10d"),
            _value(torchrun.RDZV_ENDPOINT, f"{training.address}:{names.PORT}"),
        ]
    return [
        *variables,
        _index(torchrun.NODE_RANK),
        _value(torchrun.MASTER_ADDR, training.address),
        _value(torchrun.MASTER_PORT, str(names.PORT)),
    ]


def processes_per_node(training: TrainingParameters) -> str:
    """As many as the job says; with GPUs what torchrun finds; without, the number of CPUs, rounded up."""
    if training.processes is not None:
        return str(training.processes)
    limits, requests = (training.resources.get(field) or {} for field in ("limits", "requests"))
    if any("gpu" in name.lower() for name in (*limits, *requests)):
        return torchrun.AUTO
    cpus = requests.get("cpu", limits.get("cpu"))
    return str(max(quantity.parse(cpus).value, 1)) if cpus is not None else "1"


def _jax(training: TrainingParameters) -> list[Object]:
    return [
        _value(environment.JAX_NUM_PROCESSES, str(training.nodes)),
        _index(environment.JAX_PROCESS_ID),
        _value(environment.JAX_COORDINATOR_ADDRESS, f"{training.address}:{names.PORT}"),
    ]


def _xgboost(training: TrainingParameters) -> list[Object]:
    workers = training.nodes * _gpus(training.resources)
    return [
        _value(environment.DMLC_TRACKER_URI, training.address),
        _value(environment.DMLC_TRACKER_PORT, str(names.PORT)),
        _index(environment.DMLC_TASK_ID),
        _value(environment.DMLC_NUM_WORKER, str(workers)),
    ]


def _gpus(resources: Object) -> int:
    """One worker for each GPU of a node; one without GPUs."""
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return max([quantity.parse(amount).value for name, amount in limits.items() if "gpu" in name.lower()] or [1])


def _value(name: str, value: str) -> Object:
    return {"name": name, "value": value}


def _index(name: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}}
