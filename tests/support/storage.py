"""Claims, volumes and classes for tests."""

from __future__ import annotations

from typing import Any

from torchyard.api.objects import Object
from torchyard.api.volume import messages


def claim(name: str = "data", size: str = "1Gi", *, cls: str | None = "manual", **spec: Any) -> Object:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    if cls is not None:
        claim_spec["storageClassName"] = cls
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim_spec}


def volume(
    name: str, size: str = "1Gi", *, cls: str = "manual", labels: dict[str, str] | None = None, **spec: Any
) -> Object:
    volume_spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": cls,
        "hostPath": {"path": f"/mnt/{name}"},
        **spec,
    }
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": volume_spec}


def storage_class(name: str, *, provisioner: str = "example.com/none", waits: bool = False, **more: Any) -> Object:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    metadata = {"name": name, "annotations": more.pop("annotations", {})}
    return {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **more}


def stored(obj: Object, *, status: Object | None = None, uid: str = "", namespace: str = "n", **marks: str) -> Object:
    """As a server keeps it; `marks` are annotations by the last part of their name."""
    known = {
        "completed": messages.BIND_COMPLETED,
        "ours": messages.BOUND_BY_CONTROLLER,
        "made_by": messages.PROVISIONED_BY,
        "node": messages.SELECTED_NODE,
    }
    metadata = {
        **obj["metadata"],
        "uid": uid or f"uid-of-{obj['metadata']['name']}",
        "resourceVersion": "7",
        "annotations": {known[name]: value for name, value in marks.items()},
    }
    if obj.get("kind") == "PersistentVolumeClaim":
        metadata["namespace"] = namespace
    return {**obj, "metadata": metadata, "status": status or {}}


def on_node(name: str) -> Object:
    """The affinity of a volume that lies on one node."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
