"""Defaults of volumes, claims and storage classes."""

from __future__ import annotations

from typing import Any

from torchyard.api.compute_resources import canonical_list
from torchyard.api.objects import Object

FILE_MODE = 0o644

# defaults of volume sources that only set missing values
_SOURCE_VALUES: dict[str, dict[str, Any]] = {
    "secret": {"defaultMode": FILE_MODE},
    "configMap": {"defaultMode": FILE_MODE},
    "downwardAPI": {"defaultMode": FILE_MODE},
    "projected": {"defaultMode": FILE_MODE},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_source(holder: Object) -> None:
    """Default a volume source, of a pod or of a PersistentVolume."""
    for name in holder.keys() & _SOURCE_VALUES.keys():
        source = holder[name]
        if source is None:
            continue
        for key, value in _SOURCE_VALUES[name].items():
            if source.get(key) is None or (source[key] == "" and value):
                source[key] = value


def default_claim_spec(spec: Object) -> None:
    """Default the spec of a claim, of a PVC or inside a pod or a StatefulSet."""
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    resources = spec.get("resources")
    if resources is None:
        spec["resources"] = {}
    else:
        canonical_list(resources.get("requests"))
        canonical_list(resources.get("limits"))


_DATA_SOURCE_KINDS = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def align_data_sources(spec: Object) -> None:
    """Make `dataSource` and `dataSourceRef` agree. The older field supports two kinds and silently drops all others.

    A reference to another namespace is behind a feature gate that Kubernetes 1.34 disables by default; it is dropped
    too.
    """
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace"):
        spec.pop("dataSourceRef")
        reference = None
    if reference is None:
        if source is not None and (source.get("apiGroup") or "", source.get("kind")) not in _DATA_SOURCE_KINDS:
            spec.pop("dataSource")
        elif source is not None:
            spec["dataSourceRef"] = dict(source)
    elif source is None:
        spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}


def default_claim(claim: Object) -> None:
    default_claim_spec(claim.setdefault("spec", {}))
    status = claim.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
    canonical_list(status.get("capacity"))
    canonical_list(status.get("allocatedResources"))


def default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    default_source(spec)
    canonical_list(spec.get("capacity"))
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    status = volume.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"


def default_class(storage_class: Object) -> None:
    if storage_class.get("reclaimPolicy") is None:
        storage_class["reclaimPolicy"] = "Delete"
    if storage_class.get("volumeBindingMode") is None:
        storage_class["volumeBindingMode"] = "Immediate"


def default_csi_driver(driver: Object) -> None:
    spec = driver.setdefault("spec", {})
    for name, value in (
        ("attachRequired", True),
        ("podInfoOnMount", False),
        ("storageCapacity", False),
        ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
        ("requiresRepublish", False),
        ("seLinuxMount", False),
    ):
        if spec.get(name) is None:
            spec[name] = value
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
