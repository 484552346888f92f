"""Table columns of volumes, claims, storage classes and the CSI kinds."""

from __future__ import annotations

from datetime import datetime

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.table_cells import AGE, NAME, UNSET, age_of, name_of
from torchyard.api.volume.admission import CLASS_ANNOTATION, is_default, mode_shorthand


def _class(obj: Object, spec: Object) -> str:
    return (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION) or spec.get("storageClassName") or ""


def _phase(obj: Object) -> str:
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return (obj.get("status") or {}).get("phase") or ""


_CLASS = Column("StorageClass", description="The storage class.")
_ATTRIBUTES_CLASS = Column("VolumeAttributesClass", description="The volume attributes class.")
_MODE = Column("VolumeMode", description="Filesystem or Block.", priority=1)


def _claim_cells(claim: Object, now: datetime) -> list[Cell]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    volume = spec.get("volumeName") or ""
    return [
        name_of(claim),
        _phase(claim),
        volume,
        str((status.get("capacity") or {}).get("storage", "0")) if volume else "",
        ",".join(mode_shorthand(status.get("accessModes") or ())) if volume else "",
        _class(claim, spec),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(claim, now),
        spec.get("volumeMode") or UNSET,
    ]


CLAIMS = Columns(
    (
        NAME,
        Column("Status", description="The phase of the claim."),
        Column("Volume", description="The volume that the claim is bound to."),
        Column("Capacity", description="The capacity of the volume."),
        Column("Access Modes", description="The access modes."),
        _CLASS,
        _ATTRIBUTES_CLASS,
        AGE,
        _MODE,
    ),
    _claim_cells,
)


def _volume_cells(volume: Object, now: datetime) -> list[Cell]:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef")
    return [
        name_of(volume),
        str((spec.get("capacity") or {}).get("storage", "0")),
        ",".join(mode_shorthand(spec.get("accessModes") or ())),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(volume),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(volume, spec),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason") or "",
        age_of(volume, now),
        spec.get("volumeMode") or UNSET,
    ]


VOLUMES = Columns(
    (
        NAME,
        Column("Capacity", description="The capacity of the volume."),
        Column("Access Modes", description="The access modes."),
        Column("Reclaim Policy", description="What happens to the volume when its claim is deleted."),
        Column("Status", description="The phase of the volume."),
        Column("Claim", description="The claim that the volume is bound to."),
        _CLASS,
        _ATTRIBUTES_CLASS,
        Column("Reason", description="The reason of a failed state."),
        AGE,
        _MODE,
    ),
    _volume_cells,
)


def _storage_class_cells(storage: Object, now: datetime) -> list[Cell]:
    return [
        f"{name_of(storage)} (default)" if is_default(storage) else name_of(storage),
        storage.get("provisioner") or "",
        storage.get("reclaimPolicy") or "Delete",
        storage.get("volumeBindingMode") or "Immediate",
        bool(storage.get("allowVolumeExpansion")),
        age_of(storage, now),
    ]


STORAGE_CLASSES = Columns(
    (
        NAME,
        Column("Provisioner", description="The provisioner of the volumes."),
        Column("ReclaimPolicy", description="What happens to a volume when its claim is deleted."),
        Column("VolumeBindingMode", description="Whether binding waits for the first consumer."),
        Column("AllowVolumeExpansion", description="Whether volumes can be expanded."),
        AGE,
    ),
    _storage_class_cells,
)


def _attributes_class_cells(attributes_class: Object, now: datetime) -> list[Cell]:
    return [name_of(attributes_class), attributes_class.get("driverName") or "", age_of(attributes_class, now)]


ATTRIBUTES_CLASSES = Columns(
    (NAME, Column("DriverName", description="The CSI driver of the class."), AGE), _attributes_class_cells
)


def _attachment_cells(attachment: Object, now: datetime) -> list[Cell]:
    spec = attachment.get("spec") or {}
    return [
        name_of(attachment),
        spec.get("attacher") or "",
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName") or "",
        bool((attachment.get("status") or {}).get("attached")),
        age_of(attachment, now),
    ]


ATTACHMENTS = Columns(
    (
        NAME,
        Column("Attacher", format="name", description="The driver that attaches the volume."),
        Column("PV", description="The volume."),
        Column("Node", description="The node that the volume is attached to."),
        Column("Attached", "boolean", description="Whether the volume is attached."),
        AGE,
    ),
    _attachment_cells,
)


def _csi_driver_cells(driver: Object, now: datetime) -> list[Cell]:
    spec = driver.get("spec") or {}
    audiences = [token_request.get("audience") or "" for token_request in spec.get("tokenRequests") or ()]
    return [
        name_of(driver),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(audiences) if audiences else UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "Persistent",
        age_of(driver, now),
    ]


CSI_DRIVERS = Columns(
    (
        NAME,
        Column("AttachRequired", "boolean", description="Whether volumes must be attached before they are mounted."),
        Column("PodInfoOnMount", "boolean", description="Whether the driver gets information about the pod on mount."),
        Column("StorageCapacity", "boolean", description="Whether the driver publishes its free capacity."),
        Column("TokenRequests", description="The audiences of the tokens that the driver gets."),
        Column("RequiresRepublish", "boolean", description="Whether volumes are published again periodically."),
        Column("Modes", description="The supported lifecycles of volumes."),
        AGE,
    ),
    _csi_driver_cells,
)


def _csi_node_cells(node: Object, now: datetime) -> list[Cell]:
    return [name_of(node), len((node.get("spec") or {}).get("drivers") or ()), age_of(node, now)]


CSI_NODES = Columns(
    (NAME, Column("Drivers", "integer", description="The number of CSI drivers on the node."), AGE), _csi_node_cells
)
