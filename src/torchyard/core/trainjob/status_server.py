"""The server to which the nodes of a TrainJob report their progress (KEP-2779), and what their pods need for it."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.trainjob import environment, names

_DIRECTORY, _AUTHORITY_FILE, _TOKEN_FILE = "/var/run/secrets/kubeflow/trainer", "ca.crt", "token"
_VOLUME, _TOKEN_SECONDS = "kubeflow-trainer-token", 3600
# Every namespace has it: the authority of the API server.
_ROOT_AUTHORITY = "kube-root-ca.crt"


@dataclass(frozen=True, slots=True)
class StatusServer:
    """`url` is without a path. `authority` is the server's CA; empty if that is the API server's."""

    url: str
    authority: str = ""


def plane_status_server() -> StatusServer:
    """The API server itself, at the address that every pod knows."""
    return StatusServer("https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)")


def report_variables(server: StatusServer, job: Object) -> list[Object]:
    metadata = job["metadata"]
    url = server.url + names.status_path(metadata["namespace"], metadata["name"])
    return [
        {"name": environment.STATUS_SERVER_URL, "value": url},
        {"name": environment.STATUS_SERVER_AUTHORITY, "value": f"{_DIRECTORY}/{_AUTHORITY_FILE}"},
        {"name": environment.STATUS_SERVER_TOKEN, "value": f"{_DIRECTORY}/{_TOKEN_FILE}"},
    ]


def report_mount() -> Object:
    return {"name": _VOLUME, "mountPath": _DIRECTORY, "readOnly": True}


def report_volume(server: StatusServer, job: Object) -> Object:
    """A token that is valid for the reports of this job only, and the authority."""
    metadata = job["metadata"]
    token = {
        "audience": names.status_audience(metadata["namespace"], metadata["name"]),
        "expirationSeconds": _TOKEN_SECONDS,
        "path": _TOKEN_FILE,
    }
    authority = names.tls_config_name(metadata["name"]) if server.authority else _ROOT_AUTHORITY
    items = [{"key": _AUTHORITY_FILE, "path": _AUTHORITY_FILE}]
    sources = [{"serviceAccountToken": token}, {"configMap": {"name": authority, "items": items}}]
    return {"name": _VOLUME, "projected": {"sources": sources}}


def authority_config_map(server: StatusServer, job: Object) -> Object | None:
    """The server's authority for the pods of a job; None if they have it already."""
    if not server.authority:
        return None
    metadata = {
        "name": names.tls_config_name(job["metadata"]["name"]),
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [names.owner_reference(job)],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_AUTHORITY_FILE: server.authority}}
