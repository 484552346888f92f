"""TrainJobs that train with the elastic runtime: the variables of their nodes, and the size of a running job.

The JobSet keeps the number of nodes of the TrainJob, because replicated jobs cannot be changed. A running job is
resized in its Job, whose completions and parallelism may change together. Every node has the same template, so the
worker with completion index 0 runs the coordinator; when it has succeeded, the training is complete, whoever is away.
"""

from __future__ import annotations

import re

from torchyard.api.jobset import names as jobsets
from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.api.trainjob.elastic import ElasticNodes, annotation, resized_nodes
from torchyard.api.trainjob.validation import ancestor
from torchyard.core.training import elastic
from torchyard.core.training.elastic import ElasticWorkers

INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# A job may lose nodes for months; Kubernetes counts a lost pod as a failure, and gives up after six by default.
BACKOFF_LIMIT = 100
_nodes = re.compile(r"([0-9]+):([0-9]+):([0-9]+)").fullmatch


def worker_environment(job: Object, nodes: ElasticNodes, count: int, host: str, replicated_job: str) -> list[Object]:
    """The variables of each node. `host` is the name of the first one."""
    port = str(names.COORDINATOR_PORT)
    worker = f"{jobsets.job_name(job['metadata']['name'], replicated_job, 0)}-$({elastic.INDEX})"
    variables = [
        *elastic.worker_variables(job, coordinator=f"{host}:{port}", worker=worker, count=count),
        *elastic.coordinator_variables(port, ElasticWorkers(nodes.least, count, nodes.most)),
    ]
    return [
        {"name": elastic.INDEX, "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}},
        *({"name": name, "value": value} for name, value in variables),
        elastic.token_variable(job),
    ]


def job_defaults() -> Object:
    """What the Job of the nodes gets unless its template says otherwise."""
    return {"backoffLimit": BACKOFF_LIMIT, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}


def nodes_annotation(nodes: ElasticNodes, count: int) -> Object:
    return {names.ELASTIC_NODES: f"{nodes.least}:{count}:{nodes.most}"}


def wanted_nodes(job: Object, jobset: Object) -> tuple[str, int] | None:
    """The name of the nodes' Job and how many nodes it is to have; None if the job cannot be resized."""
    match = _nodes(annotation(jobset, names.ELASTIC_NODES) or "")
    if match is None:
        return None
    least, count, most = (int(number) for number in match.groups())
    trainer = next((each for each in jobset["spec"]["replicatedJobs"] if ancestor(each) == names.TRAINER), None)
    if trainer is None:
        return None
    wanted = resized_nodes(job) or count
    return jobsets.job_name(job["metadata"]["name"], trainer["name"], 0), min(max(wanted, least), most)


def resize(child: Object, count: int) -> Object | None:
    """The patch that gives a Job so many nodes; None if it has them, or has ended."""
    spec, conditions = child["spec"], (child.get("status") or {}).get("conditions") or ()
    if spec.get("parallelism") == spec.get("completions") == count or spec.get("suspend"):
        return None
    if any(each["type"] in ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget") for each in conditions):
        return None
    return {"spec": {"parallelism": count, "completions": count}}
