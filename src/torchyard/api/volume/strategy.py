"""Strategies of volumes, claims and the kinds of storage.k8s.io."""

from __future__ import annotations

from datetime import datetime

from torchyard.api import quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import OBJECT_META, StatusSubresourceStrategy
from torchyard.api.strategy import Strategy
from torchyard.api.times import to_rfc3339
from torchyard.api.volume import classes, defaults, validation

_DEPRECATED_SOURCES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def _fraction_warning(text: str | None, field: str) -> list[str]:
    if text is None or quantity.parse(text).whole:
        return []
    return [f'{field}: fractional byte value "{text}" is invalid, must be an integer']


class PersistentVolumeStrategy(StatusSubresourceStrategy):
    validates_prefix_on_update = True
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_volume(obj)

    def prepare_create(self, obj: Object) -> None:
        created = obj["metadata"].get("creationTimestamp")
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": created}

    def stamp_status(self, new: Object, old: Object, now: datetime) -> None:
        status, before = new.get("status") or {}, old.get("status") or {}
        stated, earlier = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        is_same_phase = (status.get("phase") or "") == (before.get("phase") or "")
        time = earlier if is_same_phase else to_rfc3339(now)
        if time is not None and (stated is None or (stated == earlier and not is_same_phase)):
            new["status"] = {**status, "lastPhaseTransitionTime": time}

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_volume(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_volume_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        spec = obj["spec"]
        warnings = []
        if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            warnings.append(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
                "recommended approach is to use dynamic provisioning."
            )
        warnings += [f"spec.{kind}: {text}" for kind, text in _DEPRECATED_SOURCES.items() if spec.get(kind) is not None]
        return warnings


class PersistentVolumeClaimStrategy(StatusSubresourceStrategy):
    validates_prefix_on_update = True
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_claim(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}
        defaults.align_data_sources(obj["spec"])

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        defaults.align_data_sources(new["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_claim(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_claim_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_claim_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        resources = obj["spec"].get("resources") or {}
        at = "spec.resources"
        return [
            line
            for kind in ("requests", "limits")
            for line in _fraction_warning((resources.get(kind) or {}).get("storage"), f"{at}.{kind}[storage]")
        ]


class StorageClassStrategy(Strategy):
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        defaults.default_class(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return classes.validate_storage_class(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return classes.validate_storage_class_update(new, old)


class VolumeAttributesClassStrategy(Strategy):
    returns_deleted = True
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        return classes.validate_attributes_class(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return classes.validate_attributes_class_update(new, old)


class CSIDriverStrategy(Strategy):
    returns_deleted = True
    unconditional_update = False
    generation_fields = None

    def prepare_create(self, obj: Object) -> None:
        # behind a feature gate that Kubernetes 1.34 disables by default
        obj["spec"].pop("nodeAllocatableUpdatePeriodSeconds", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        self.prepare_create(new)

    def default(self, obj: Object) -> None:
        defaults.default_csi_driver(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return classes.validate_driver(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return classes.validate_driver_update(new, old)


class CSINodeStrategy(Strategy):
    returns_deleted = True
    unconditional_update = False
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        return classes.validate_csi_node(obj)


class VolumeAttachmentStrategy(StatusSubresourceStrategy):
    validates_prefix_on_update = True
    status_keeps = OBJECT_META
    returns_deleted = True
    unconditional_update = False
    generation_fields = None

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def validate(self, obj: Object) -> list[FieldError]:
        return classes.validate_attachment(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return classes.validate_attachment_update(new, old)


class CSIStorageCapacityStrategy(Strategy):
    unconditional_update = False
    generation_fields = None

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_capacity_object(obj)
