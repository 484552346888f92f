"""Pods as the controllers of workloads see them, and new pods from a template."""

from __future__ import annotations

from datetime import datetime, timedelta

from torchyard.api import conditions
from torchyard.api.names import subdomain_problems
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.api.times import parse_rfc3339


def ready_since(pod: Object) -> datetime | None:
    """When a ready pod became ready."""
    condition = conditions.find((pod.get("status") or {}).get("conditions") or (), "Ready")
    if condition is None or condition["status"] != "True" or not condition.get("lastTransitionTime"):
        return None
    return parse_rfc3339(condition["lastTransitionTime"])


def is_available(pod: Object, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod has been ready for minReadySeconds."""
    if not is_ready(pod):
        return False
    if not min_ready_seconds:
        return True
    since = ready_since(pod)
    return since is not None and since + timedelta(seconds=min_ready_seconds) <= now


def seconds_until_available(pod: Object, min_ready_seconds: int, now: datetime) -> float | None:
    """For a pod that is ready but not available; otherwise None."""
    since = ready_since(pod) if min_ready_seconds else None
    if since is None:
        return None
    seconds = (since - now).total_seconds() + min_ready_seconds
    return seconds if seconds > 0 else None


def earliest(*delays: float | None) -> float | None:
    """The shortest of some delays; None if there is none."""
    return min((delay for delay in delays if delay is not None), default=None)


def name_prefix(name: str) -> str:
    """The prefix of generated pod names: with a dash, unless the name would not be valid then."""
    return name if subdomain_problems(f"{name}-a") else f"{name}-"


def pod_from_template(owner: Object, template: Object, reference: Object) -> Object:
    """A new pod; its containers are shared with the template and must not be changed."""
    template_metadata = template.get("metadata") or {}
    metadata: Object = {
        "generateName": name_prefix(owner["metadata"]["name"]),
        "namespace": owner["metadata"].get("namespace", ""),
        "labels": dict(template_metadata.get("labels") or {}),
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [reference],
    }
    if template_metadata.get("finalizers"):
        metadata["finalizers"] = list(template_metadata["finalizers"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template["spec"])}
