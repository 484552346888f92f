"""Checks whether a connection may take part in a job. Pure: it opens no sockets and changes nothing."""

from __future__ import annotations

import hmac
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError


def admit(hello: wire.Hello, *, job: str, token: str) -> None:
    """Raise unless the connection belongs to the job and speaks the same version of the protocol."""
    if not hmac.compare_digest(hello.token.encode(), token.encode()):
        raise ElasticError(
            "BadToken", f"the token of {hello.name} is missing or wrong", hint="start the worker with the job's runner"
        )
    if hello.job != job:
        raise ElasticError(
            "OtherJob",
            f"{hello.name} belongs to job {hello.job!r}, but this coordinator serves job {job!r}",
            hint="check the worker's coordinator address",
        )
    if hello.version != wire.VERSION:
        raise ElasticError(
            "OtherVersion",
            f"{hello.name} uses protocol version {hello.version}, this coordinator uses {wire.VERSION}",
            hint="use the same torchyard version everywhere in a job",
        )


def compare_config(name: str, worker: dict[str, Any], job: dict[str, Any]) -> None:
    """Raise if a worker would not compute what its job computes."""
    differing = [key for key in sorted(set(worker) | set(job)) if worker.get(key) != job.get(key)]
    if differing:
        facts = "; ".join(f"{key} is {worker.get(key)!r}, the job has {job.get(key)!r}" for key in differing)
        raise ElasticError(
            "ConfigChanged",
            f"the configuration of {name} differs from its job: {facts}",
            hint="use the same settings on every worker",
        )
