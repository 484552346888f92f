"""The variables of a replica: torch.distributed's and torchrun's (PET_), named and ordered as upstream does."""

from __future__ import annotations

from torchyard.api import torchrun
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.pytorchjob.defaults import job_port
from torchyard.core.pytorchjob.view import PyTorchJobView
from torchyard.core.training.elastic import ElasticWorkers, coordinator_variables, worker_variables

Variable = tuple[str, str]


def environment(view: PyTorchJobView, replica_type: str, index: int) -> list[Variable]:
    """The variables appended to every container of a replica."""
    variables: list[Variable] = [("PYTHONUNBUFFERED", "1")]
    if view.has_master or view.ranks_workers:
        variables += _rendezvous(view, replica_type, index)
    if view.spec.get("nprocPerNode") is not None:
        variables.append((torchrun.NPROC_PER_NODE, view.spec["nprocPerNode"]))
    if view.elastic is None:
        variables.append((torchrun.NNODES, str(view.total)))
    elif view.elastic["rdzvBackend"] == torchrun.TORCHYARD:
        variables += runtime_environment(view, replica_type, index)
    else:
        variables += elastic_environment(view)
    return variables


def runtime_environment(view: PyTorchJobView, replica_type: str, index: int) -> list[Variable]:
    """How a worker of the elastic runtime finds its coordinator, which runs in the first replica."""
    policy = view.elastic or {}
    lead = names.MASTER if view.has_master else names.WORKER
    own, first = names.replica_name(view.name, replica_type, index), names.replica_name(view.name, lead, 0)
    port = coordinator_port(view)
    coordinator = f"{policy.get('rdzvHost') or first}:{port}"
    variables = worker_variables(view.job, coordinator=coordinator, worker=own, count=view.total)
    if serves_coordinator(view, replica_type, index):
        workers = ElasticWorkers(policy["minReplicas"], view.total, policy["maxReplicas"])
        variables += coordinator_variables(port, workers)
    return variables


def needs_token(job: Object) -> bool:
    """Whether the job trains with the elastic runtime."""
    return (job["spec"].get("elasticPolicy") or {}).get("rdzvBackend") == torchrun.TORCHYARD


def serves_coordinator(view: PyTorchJobView, replica_type: str, index: int) -> bool:
    """Whether this replica runs the coordinator of the elastic runtime."""
    policy = view.elastic or {}
    lead = names.MASTER if view.has_master else names.WORKER
    return (
        policy.get("rdzvBackend") == torchrun.TORCHYARD
        and not policy.get("rdzvHost")
        and (replica_type, index) == (lead, 0)
    )


def coordinator_port(view: PyTorchJobView) -> str:
    lead = names.MASTER if view.has_master else names.WORKER
    return str((view.elastic or {}).get("rdzvPort") or job_port(view.replicas[lead]))


def _rendezvous(view: PyTorchJobView, replica_type: str, index: int) -> list[Variable]:
    """The rendezvous of torch.distributed. RANK is upstream's: one per replica, not per process."""
    lead = names.MASTER if view.has_master else names.WORKER
    port = str(job_port(view.replicas[lead]))
    address = names.replica_name(view.name, lead, 0)
    is_after_master = view.has_master and replica_type == names.WORKER
    rank = str(index + 1 if is_after_master else index)
    return [
        ("MASTER_PORT", port),
        (torchrun.MASTER_PORT, port),
        ("MASTER_ADDR", address),
        (torchrun.MASTER_ADDR, address),
        ("WORLD_SIZE", str(view.total * _processes(view))),
        ("RANK", rank),
        (torchrun.NODE_RANK, rank),
    ]


def _processes(view: PyTorchJobView) -> int:
    count = view.spec.get("nprocPerNode") or ""
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 1


def elastic_environment(view: PyTorchJobView) -> list[Variable]:
    """torchrun's rendezvous variables of a job with an elastic policy."""
    policy = view.elastic
    if policy is None:
        return []
    host = policy.get("rdzvHost") or names.replica_name(view.name, names.WORKER, 0)
    port = policy.get("rdzvPort")
    if port is None:
        port = job_port(view.replicas[names.WORKER])
    variables: list[Variable] = [
        (torchrun.RDZV_ENDPOINT, f"{host}:{port}"),
        (torchrun.RDZV_BACKEND, policy["rdzvBackend"]),
        (torchrun.NNODES, f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    if policy.get("maxRestarts") is not None:
        variables.append((torchrun.MAX_RESTARTS, str(policy["maxRestarts"])))
    if policy.get("nProcPerNode") is not None:
        variables.append((torchrun.NPROC_PER_NODE, str(policy["nProcPerNode"])))
    if policy.get("rdzvId") is not None:
        variables.append((torchrun.RDZV_ID, policy["rdzvId"]))
    if policy.get("rdzvConf"):
        pairs = (f"{setting.get('key', '')}={setting.get('value', '')}" for setting in policy["rdzvConf"])
        variables.append((torchrun.RDZV_CONF, ",".join(pairs)))
    if policy.get("standalone"):
        variables.append((torchrun.STANDALONE, ""))
    return variables
