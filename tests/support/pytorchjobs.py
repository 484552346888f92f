"""PyTorchJobs, and pods in every state, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.times import to_rfc3339

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def replica(count: int | None = 1, *, policy: str = "", container: Object | None = None, **template: Any) -> Object:
    main = {"name": "pytorch", "image": "busybox", **(container or {})}
    spec: Object = {"template": {"spec": {"containers": [main], **template.pop("spec", {})}, **template}}
    if count is not None:
        spec["replicas"] = count
    if policy:
        spec["restartPolicy"] = policy
    return spec


def job(
    name: str = "train",
    *,
    master: Object | int | None = 1,
    worker: Object | int | None = 2,
    policy: str = "",
    annotations: dict[str, str] | None = None,
    status: Object | None = None,
    run: Object | None = None,
    **spec: Any,
) -> Object:
    """A Master and two Workers, or what the caller says; a number stands for so many plain replicas."""
    replicas = {names.MASTER: master, names.WORKER: worker}
    replicas = {
        kind: replica(value, policy=policy) if isinstance(value, int) else value
        for kind, value in replicas.items()
        if value is not None
    }
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if annotations:
        metadata["annotations"] = annotations
    manifest: Object = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": run or {}, **spec},
    }
    if status is not None:
        manifest["status"] = status
    return manifest


def pod(
    kind: str,
    index: int,
    phase: str = "Running",
    *,
    of: str = "train",
    code: int | None = None,
    restarts: int = 0,
    going: datetime | None = None,
    created: datetime = NOW,
    **more: Any,
) -> Object:
    """A replica's pod as a node has left it."""
    name = names.replica_name(of, kind, index)
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": more.get("uid", f"uid-{name}"),
        "labels": names.selector_labels(of, kind, index),
        "creationTimestamp": to_rfc3339(created),
    }
    if going is not None:
        metadata["deletionTimestamp"] = to_rfc3339(going)
    state: Object = {"running": {}} if code is None else {"terminated": {"exitCode": code, "reason": "Error"}}
    container = {"name": names.CONTAINER, "restartCount": restarts, "state": state}
    status = {"phase": phase, "containerStatuses": [container]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": status}


def service(kind: str, index: int, *, of: str = "train") -> Object:
    name = names.replica_name(of, kind, index)
    labels = names.selector_labels(of, kind, index)
    metadata = {"name": name, "namespace": "default", "uid": f"uid-service-{name}", "labels": labels}
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata}


def conditions(status: Object | None) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in (status or {}).get("conditions") or ()]
