"""A job as a manifest again, under another name: without what the server and the controllers wrote into it."""

from __future__ import annotations

import copy
import re

from torchyard.api.objects import Object
from torchyard.core.run.program import pod_specs
from torchyard.core.run.script_job import workspace_name, workspace_parts

RERUN_OF = "torchyard.dev/rerun-of"
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the prefix of a volume's name
_CONTROLLER_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
_OWN_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration", "batch.kubernetes.io/job-tracking")
_MAX_NAME = 57  # leaves room for a suffix in 63 characters


def base_name(name: str) -> str:
    """The name without the suffix of an earlier run."""
    return _SUFFIX.sub("", name)[:_MAX_NAME].rstrip("-")


def renamed_job(job: Object, name: str) -> Object:
    """The manifest of a job for another run."""
    metadata = job["metadata"]
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _OWN_ANNOTATIONS
    }
    spec = copy.deepcopy(job["spec"])
    copied: Object = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "annotations": {**annotations, RERUN_OF: metadata["name"]},
            **({"labels": _labels(metadata)} if _labels(metadata) else {}),
        },
        "spec": spec,
    }
    _clean(copied)
    for pod in pod_specs(copied):
        _rename_workspace(pod, metadata["name"], name)
    return copied


def _labels(metadata: Object) -> dict[str, str]:
    return {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _CONTROLLER_LABELS}


def _clean(job: Object) -> None:
    """Drop what belongs to the earlier run: its selector, its place on a node, its token, whether it was suspended."""
    spec = job["spec"]
    (spec.get("runPolicy") or {}).pop("suspend", None)
    spec.pop("suspend", None)
    if job["kind"] == "Job":
        if not spec.get("manualSelector"):
            spec.pop("selector", None)
        spec.pop("manualSelector", None)
        labels = spec["template"].get("metadata", {}).get("labels") or {}
        for label in _CONTROLLER_LABELS:
            labels.pop(label, None)
    if job["kind"] == "Pod":
        for key in ("nodeName", "ephemeralContainers", "priority", "preemptionPolicy"):
            spec.pop(key, None)
        spec["volumes"] = [entry for entry in spec.get("volumes") or () if not _is_token(entry["name"])]
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            mounts = [mount for mount in container.get("volumeMounts") or () if not _is_token(mount["name"])]
            container["volumeMounts"] = mounts


def _is_token(volume: str) -> bool:
    return volume.startswith(_TOKEN_VOLUME)


def _rename_workspace(pod: Object, before: str, after: str) -> None:
    names = {workspace_name(before, part): workspace_name(after, part) for part in range(workspace_parts(pod))}
    for volume in pod.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            reference = source.get("configMap") or {}
            if reference.get("name") in names:
                reference["name"] = names[reference["name"]]
