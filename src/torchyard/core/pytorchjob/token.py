"""The token of a job of the elastic runtime: whoever has it can take part in the job, so it is in a Secret."""

from __future__ import annotations

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names

TORCHYARD = "torchyard"
"""The elastic policy's rendezvous backend that means our own runtime."""
VARIABLE = "TORCHYARD_ELASTIC_TOKEN"
_KEY = "token"


def needs_token(job: Object) -> bool:
    return (job["spec"].get("elasticPolicy") or {}).get("rdzvBackend") == TORCHYARD


def token_secret_name(job: Object) -> str:
    """The name contains a part of the uid: a later job of the same name has a secret of its own."""
    return f"{job['metadata']['name']}-elastic-{job['metadata'].get('uid', '')[:8]}"


def token_variable(job: Object) -> Object:
    return {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": token_secret_name(job), "key": _KEY}}}


def make_token_secret(job: Object, token: str) -> Object:
    metadata = job["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token_secret_name(job),
            "namespace": metadata["namespace"],
            "ownerReferences": [controller_reference(job, names.API_VERSION, names.KIND)],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {_KEY: token},
    }
