"""Who may take part in a job: refusals that say what to do. Knows no sockets and changes nothing."""

from __future__ import annotations

import hmac
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.errors import ElasticError


def admit(hello: wire.Hello, *, job: str, token: str) -> None:
    """Refuse whoever does not belong to the job."""
    if not hmac.compare_digest(hello.token.encode(), token.encode()):
        raise ElasticError("BadToken", f"{hello.name} has not the token of this job", hint="start it with the runner")
    if hello.job != job:
        raise ElasticError(
            "OtherJob",
            f"{hello.name} belongs to job {hello.job!r}, this is the coordinator of {job!r}",
            hint="check the coordinator address it was given",
        )
    if hello.version != wire.VERSION:
        raise ElasticError(
            "OtherVersion",
            f"{hello.name} speaks version {hello.version}, this coordinator {wire.VERSION}",
            hint="use the same torchyard version everywhere in a job",
        )


def compare(name: str, told: dict[str, Any], settled: dict[str, Any]) -> None:
    """Refuse a worker that would compute something else than its job does."""
    differing = [key for key in sorted(set(told) | set(settled)) if told.get(key) != settled.get(key)]
    if differing:
        facts = "; ".join(f"{key} is {told.get(key)!r}, the job has {settled.get(key)!r}" for key in differing)
        raise ElasticError("ConfigChanged", f"{name} differs from its job: {facts}", hint="use equal settings")
