"""Where the operator of a cluster serves the curves of jobs: a port of its Service, through the API server's proxy."""

from __future__ import annotations

from urllib.parse import quote, urlencode

OPERATOR_SERVICE, OPERATOR_NAMESPACE = "torchyard-operator", "torchyard-system"
PORT_NAME = "samples"
PATH = "/samples"
# The name in a rule for services/proxy: of this port only.
PROXIED_NAME = f"{OPERATOR_SERVICE}:{PORT_NAME}"


def samples_path(job: tuple[str, str, str], since: float, uid: str) -> str:
    """The path of a job's curves on the operator's port; the job is namespace, resource with group, and name."""
    parts = "/".join(quote(part, safe="") for part in job)
    return f"{PATH}/{parts}?{urlencode({'since': since, 'uid': uid})}"


def proxied_path(namespace: str, path: str) -> str:
    """The path on the API server that leads to the operator of this namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{PROXIED_NAME}/proxy{path}"
