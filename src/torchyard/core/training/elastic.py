"""Workers of the elastic runtime in pods: how they find their coordinator, and the token of their job.

The coordinator runs beside the first worker. Whoever has the token can take part in the job, so it is in a Secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object

TOKEN = "TORCHYARD_ELASTIC_TOKEN"  # noqa: S105 - a variable's name
COORDINATOR = "TORCHYARD_ELASTIC_COORDINATOR"
JOB = "TORCHYARD_ELASTIC_JOB"
WORKER = "TORCHYARD_ELASTIC_WORKER"
WORKER_NUM = "WORKER_NUM"
INDEX = "TORCHYARD_ELASTIC_INDEX"
SERVE = "TORCHYARD_ELASTIC_SERVE"
WORLD = "TORCHYARD_ELASTIC_WORLD"
RETIRED_CODE = "TORCHYARD_ELASTIC_RETIRED_CODE"
VARIABLES = (TOKEN, COORDINATOR, JOB, WORKER, WORKER_NUM, INDEX, SERVE, WORLD, RETIRED_CODE)
LEFT_CODE = "143"
"""The exit code of a worker that leaves before the training is complete: with 0 its job would count as succeeded, and
its pod would not be replaced. As a shell reports SIGTERM."""
_KEY = "token"


@dataclass(frozen=True, slots=True)
class ElasticWorkers:
    """The workers of a job: how many there are at first, and the limits."""

    least: int
    count: int
    most: int


def worker_variables(job: Object, *, coordinator: str, worker: str, count: int) -> list[tuple[str, str]]:
    """`coordinator` is HOST:PORT; `worker` the worker's name, unique in the job."""
    metadata = job["metadata"]
    return [
        (COORDINATOR, coordinator),
        (JOB, f"{metadata.get('namespace', '')}/{metadata['name']}"),
        (WORKER, worker),
        (WORKER_NUM, str(count)),
        (RETIRED_CODE, LEFT_CODE),
    ]


def coordinator_variables(port: str, workers: ElasticWorkers) -> list[tuple[str, str]]:
    """What the worker that runs the coordinator needs besides."""
    return [(SERVE, port), (WORLD, f"{workers.least}:{workers.count}:{workers.most}")]


def token_secret_name(job: Object) -> str:
    """The name contains a part of the uid: a later job of the same name has a secret of its own."""
    return f"{job['metadata']['name']}-elastic-{job['metadata'].get('uid', '')[:8]}"


def token_variable(job: Object) -> Object:
    return {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": token_secret_name(job), "key": _KEY}}}


def make_token_secret(job: Object, owner: Object, token: str) -> Object:
    """`owner` is the owner reference to the job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token_secret_name(job),
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {_KEY: token},
    }
