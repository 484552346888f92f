"""Volumes that are directories on this machine: which claims get one, and the volume object."""

from __future__ import annotations

from pathlib import Path

from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.api.volume.admission import DEFAULT_CLASS
from torchyard.core.volume.view import CLAIM, VOLUME, annotations_of, class_of, phase, volume_mode

PROVISIONER = "local.torchyard.dev/dir"
HOSTNAME = "kubernetes.io/hostname"
# Storage classes that manifests for other clusters commonly name.
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
    """The storage class of local volumes. It binds immediately, because there is only one node."""
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
    """Whether the claim is annotated for this provisioner and, if a node was selected, for this node."""
    annotations = annotations_of(claim)
    if (
        annotations.get(messages.PROVISIONER) != PROVISIONER
        or claim["spec"].get("volumeName")
        or phase(claim) == "Bound"
    ):
        return False
    return not claim["metadata"].get("deletionTimestamp") and annotations.get(messages.SELECTED_NODE, node) == node


def unsupported_reason(claim: Object) -> str:
    """Why a directory cannot satisfy a claim; empty if it can."""
    spec = claim["spec"]
    if volume_mode(claim) == "Block":
        return messages.NO_BLOCK_DEVICE
    if spec.get("selector"):
        return messages.NO_SELECTOR
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        return messages.NO_DATA_SOURCE
    return ""


def volume_name(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def directory_name(volume: Object) -> str:
    """The directory of a local volume. The name begins with the volume's name, so it is unique."""
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
    """Whether a released local volume is to be deleted with its data."""
    return (
        is_ours(volume)
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and phase(volume) == "Released"
    )


def is_retained(volume: Object) -> bool:
    """Whether a local volume is deleted while its data is kept: then our finalizer must not hold it."""
    spec = volume["spec"]
    return (
        is_ours(volume)
        and bool(volume["metadata"].get("deletionTimestamp"))
        and phase(volume) != "Bound"
        and spec.get("persistentVolumeReclaimPolicy") != "Delete"
        and messages.PROVISIONER_FINALIZER in (volume["metadata"].get("finalizers") or ())
    )


def expand(claim: Object, volume: Object, requested: str) -> tuple[Object, Object]:
    """The volume and the claim's status after an expansion. A directory has no size of its own to change."""
    capacity = {**(volume["spec"].get("capacity") or {}), "storage": requested}
    larger = {**volume, "spec": {**volume["spec"], "capacity": capacity}}
    status = {**(claim.get("status") or {})}
    status["capacity"] = {**(status.get("capacity") or {}), "storage": requested}
    return larger, status
