"""Changes to volumes and claims between defaulting and validation, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.api.volume.claims import ACCESS_MODES

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
ATTRIBUTES_PROTECTION = "kubernetes.io/vac-protection"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_OLD_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_PROTECTION = {
    "PersistentVolumeClaim": CLAIM_PROTECTION,
    "PersistentVolume": VOLUME_PROTECTION,
    "VolumeAttributesClass": ATTRIBUTES_PROTECTION,
}


def protect(obj: Object) -> None:
    """Add the finalizer that protects a new claim or volume from deletion while it is in use."""
    finalizer = _PROTECTION.get(obj.get("kind", ""))
    present = obj["metadata"].get("finalizers") or []
    if finalizer and finalizer not in present:
        obj["metadata"]["finalizers"] = [*present, finalizer]


def is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return "true" in (annotations.get(DEFAULT_CLASS), annotations.get(_OLD_DEFAULT_CLASS))


def default_class(classes: Iterable[Object]) -> Object | None:
    """Return the default storage class."""
    return newest_default(storage_class for storage_class in classes if is_default(storage_class))


def newest_default(marked: Iterable[Object]) -> Object | None:
    """Return the newest of the classes marked as default; of those created at the same time, the first by name."""
    by_name = sorted(marked, key=lambda storage_class: str(storage_class["metadata"]["name"]))
    return max(
        by_name, key=lambda storage_class: str(storage_class["metadata"].get("creationTimestamp") or ""), default=None
    )


def set_default_class(claim: Object, classes: Iterable[Object]) -> None:
    """Set the default class of a claim without a class. An empty class name means no class."""
    spec = claim["spec"]
    if spec.get("storageClassName") is not None or CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {}):
        return
    chosen = default_class(classes)
    if chosen is not None:
        spec["storageClassName"] = chosen["metadata"]["name"]


def check_expansion(new: Object, old: Object, storage_class: Object | None) -> None:
    """Raise 403 unless the storage class allows expansion. Call this if the requested size of a bound claim grows."""
    name = new["metadata"]["name"]
    if (old.get("status") or {}).get("phase") != "Bound":
        why = "Only bound persistent volume claims can be expanded"
        raise errors.forbidden("persistentvolumeclaims", "", name, why)
    if storage_class is None or not storage_class.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
            "must support resize"
        )
        raise errors.forbidden("persistentvolumeclaims", "", name, why)


def mode_shorthand(modes: Iterable[str]) -> list[str]:
    """Abbreviate access modes (`ReadWriteOnce` is `RWO`), in kubectl's order."""
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    present = set(modes)
    return [short[mode] for mode in short if mode in present and mode in ACCESS_MODES]
