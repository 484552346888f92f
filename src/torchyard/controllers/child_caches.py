"""The caches of the pods and services of jobs. There are thousands of them, so a cache keeps only what is read.

Nothing here may be written back: children are created, patched and deleted, and never updated.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.core.scheduling.schedule import GANG_NAME, GANG_SIZE
from torchyard.kube.informer import IndexFunc, Informer
from torchyard.kube.informer_factory import InformerFactory

_MANAGED_SELECTOR = f"{names.OPERATOR_NAME}={names.CONTROLLER}"
_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
)
_LABELS = (names.REPLICA_TYPE, names.REPLICA_INDEX)
_ANNOTATIONS = (GANG_NAME, GANG_SIZE)
_OWNER = ("kind", "name", "uid", "controller")
_CONTAINER = ("name", "restartCount", "state")
_CONTAINERS = ("initContainerStatuses", "containerStatuses")


def managed_pods(informers: InformerFactory, *, indexes: Mapping[str, IndexFunc] | None = None) -> Informer:
    """The pods of PyTorchJobs, without their containers, which are known from the job."""
    return informers.for_resource(PODS, labels=_MANAGED_SELECTOR, indexes=indexes, transform=trim_pod)


def child_services(informers: InformerFactory, *, indexes: Mapping[str, IndexFunc] | None = None) -> Informer:
    """All services, those of PyTorchJobs and JobSets among them: the services of JobSets have no label."""
    return informers.for_resource(SERVICES, indexes=indexes, transform=trim_service)


def trim_pod(pod: Object) -> Object:
    node, status = (pod.get("spec") or {}).get("nodeName"), pod.get("status") or {}
    trimmed: Object = {"phase": status["phase"]} if "phase" in status else {}
    for field in _CONTAINERS:
        if containers := status.get(field):
            trimmed[field] = [_only(container, _CONTAINER) for container in containers]
    if len(trimmed) <= 1 and "conditions" in status:  # they matter until containers have statuses
        trimmed["conditions"] = status["conditions"]
    return {"metadata": _trim_metadata(pod), "spec": {"nodeName": node} if node else {}, "status": trimmed}


def trim_service(service: Object) -> Object:
    return {"metadata": _trim_metadata(service)}


def _trim_metadata(obj: Object) -> Object:
    metadata = obj["metadata"]
    trimmed = _only(metadata, _METADATA)
    if labels := _only(metadata.get("labels") or {}, _LABELS):
        trimmed["labels"] = labels
    if annotations := _only(metadata.get("annotations") or {}, _ANNOTATIONS):
        trimmed["annotations"] = annotations
    if owners := metadata.get("ownerReferences"):
        trimmed["ownerReferences"] = [_only(owner, _OWNER) for owner in owners]
    return trimmed


def _only(part: Object, names_kept: tuple[str, ...]) -> Object:
    return {name: part[name] for name in names_kept if name in part}
