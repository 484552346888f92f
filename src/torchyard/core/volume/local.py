"""Volumes that are directories of this machine: which claims get one, and what the volume looks like."""

from __future__ import annotations

from pathlib import Path

from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.api.volume.admission import DEFAULT_CLASS
from torchyard.core.volume.view import CLAIM, VOLUME, annotations_of, class_of, phase, volume_mode

PROVISIONER = "local.torchyard.dev/dir"
HOSTNAME = "kubernetes.io/hostname"
# Names of classes that manifests written for other clusters ask for.
CLASS_ALIASES = (
    "csi-cephfs-sc",
    "k8s-storage-policy",
    "standard",
    "standard-rwo",
    "gp2",
    "gp3",
    "local-path",
    "nfs-client",
)


def local_class() -> Object:
    """The class of this machine's own volumes. It binds at once: with one node there is nothing to wait for."""
    annotations = {DEFAULT_CLASS: "true", messages.ALIASES: ",".join(CLASS_ALIASES)}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local", "annotations": annotations},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def is_requested(claim: Object, node: str) -> bool:
    """Whether the binder has left this claim to us, and, where a pod decided, to this node."""
    annotations = annotations_of(claim)
    if (
        annotations.get(messages.PROVISIONER) != PROVISIONER
        or claim["spec"].get("volumeName")
        or phase(claim) == "Bound"
    ):
        return False
    return not claim["metadata"].get("deletionTimestamp") and annotations.get(messages.SELECTED_NODE, node) == node


def unsupported_reason(claim: Object) -> str:
    """What a directory cannot be."""
    spec = claim["spec"]
    if volume_mode(claim) == "Block":
        return "a directory cannot be a block device; use volumeMode Filesystem"
    if spec.get("selector"):
        return "claim Selector is not supported; a volume is made for the claim"
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        return "a volume cannot be made from another one here; leave out dataSource and dataSourceRef"
    return ""


def volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def directory_name(volume: Object) -> str:
    """Of a volume that was made here: the volume's name first, so that no two are the same."""
    reference = volume["spec"]["claimRef"]
    return f"{volume['metadata']['name']}_{reference['namespace']}_{reference['name']}"


def local_volume(claim: Object, storage_class: Object, *, root: Path, node: str) -> Object:
    spec, metadata = claim["spec"], claim["metadata"]
    reference = {"apiVersion": "v1", "kind": CLAIM, "namespace": metadata["namespace"], "name": metadata["name"]}
    this_node = {"key": HOSTNAME, "operator": "In", "values": [node]}
    volume: Object = {
        "apiVersion": "v1",
        "kind": VOLUME,
        "metadata": {
            "name": volume_name(claim),
            "annotations": {messages.PROVISIONED_BY: PROVISIONER},
            "finalizers": [messages.PROVISIONER_FINALIZER],
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": class_of(claim),
            "volumeMode": "Filesystem",
            "claimRef": {**reference, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [this_node]}]}},
        },
    }
    if name := spec.get("volumeAttributesClassName"):
        volume["spec"]["volumeAttributesClassName"] = name
    volume["spec"]["local"] = {"path": str(root / directory_name(volume))}
    return volume


def is_ours(volume: Object) -> bool:
    return annotations_of(volume).get(messages.PROVISIONED_BY) == PROVISIONER


def is_to_delete(volume: Object) -> bool:
    """A volume of ours whose claim is gone, and whose data shall go with it."""
    return (
        is_ours(volume)
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and phase(volume) == "Released"
    )


def is_retained(volume: Object) -> bool:
    """A volume of ours that somebody deletes, and whose data stay: nobody's finalizer need hold it."""
    spec = volume["spec"]
    return (
        is_ours(volume)
        and bool(volume["metadata"].get("deletionTimestamp"))
        and phase(volume) != "Bound"
        and spec.get("persistentVolumeReclaimPolicy") != "Delete"
        and messages.PROVISIONER_FINALIZER in (volume["metadata"].get("finalizers") or ())
    )


def expand(claim: Object, volume: Object, requested: str) -> tuple[Object, Object]:
    """The volume and the claim's status after the claim has grown: a directory holds whatever it is said to hold."""
    capacity = {**(volume["spec"].get("capacity") or {}), "storage": requested}
    larger = {**volume, "spec": {**volume["spec"], "capacity": capacity}}
    status = {**(claim.get("status") or {})}
    status["capacity"] = {**(status.get("capacity") or {}), "storage": requested}
    return larger, status
