"""Jobs, and pods in every state, for tests."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.api.job import labels
from torchyard.api.job.defaults import default_job
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
_numbers = itertools.count()


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def manifest(name: str = "work", *, restart: str = "Never", template: Object | None = None, **spec: Any) -> Object:
    """A Job as a user writes it."""
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    pod = {"restartPolicy": restart, "containers": [container]}
    template_fields = template or {}
    pod_template = {**template_fields, "spec": {**pod, **template_fields.get("spec", {})}}
    metadata = {"generateName": name} if name.endswith("-") else {"name": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod_template, **spec}}


def stored(name: str = "work", *, status: Object | None = None, restart: str = "Never", **spec: Any) -> Object:
    """A Job as the server keeps it."""
    job = manifest(name, restart=restart, **spec)
    job["metadata"] |= {"namespace": "default", "uid": f"uid-{name}"}
    default_job(job)
    job["spec"]["selector"] = {"matchLabels": {labels.CONTROLLER_UID: f"uid-{name}"}}
    if status is not None:
        job["status"] = status
    return job


def pod(
    phase: str = "Running",
    *,
    index: int | None = None,
    uid: str = "",
    code: int | None = None,
    ended: datetime = NOW,
    going: bool = False,
    tracked: bool = True,
    ready: bool = False,
    failures: int | None = None,
    **more: Any,
) -> Object:
    """A Job's pod as a node has left it."""
    uid = uid or f"pod-{next(_numbers)}"
    notes: dict[str, str] = {}
    if index is not None:
        notes[labels.COMPLETION_INDEX] = str(index)
    if failures is not None:
        notes[labels.INDEX_FAILURE_COUNT] = str(failures)
    metadata: Object = {
        "name": more.get("name", f"work-{uid}"),
        "namespace": "default",
        "uid": uid,
        "annotations": notes,
        "creationTimestamp": to_rfc3339(more.get("made", NOW)),
    }
    if tracked:
        metadata["finalizers"] = [labels.TRACKING_FINALIZER]
    if going:
        metadata["deletionTimestamp"] = to_rfc3339(ended)
    if code is None and phase in ("Succeeded", "Failed"):
        code = 0 if phase == "Succeeded" else 1
    container: Object = {"name": "main", "restartCount": more.get("restarts", 0), "state": {"running": {}}}
    if code is not None:
        container["state"] = {"terminated": {"exitCode": code, "finishedAt": to_rfc3339(ended)}}
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    conditions += more.get("conditions", [])
    status = {"phase": phase, "containerStatuses": [container], "conditions": conditions}
    spec = {"nodeName": "node"} if more.get("placed", True) else {}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def conditions(status: Object | None) -> list[tuple[str, str]]:
    return [(condition["type"], condition["status"]) for condition in (status or {}).get("conditions") or ()]
