"""Validation of volumes, claims and storage capacities on create and update."""

from __future__ import annotations

from typing import Any

from torchyard.api import checks, compute_resources, field_errors, names, quantity, selectors
from torchyard.api.diff import format_diff, semantically_equal
from torchyard.api.field_errors import FieldError
from torchyard.api.node_selectors import check_node_selector
from torchyard.api.objects import Object
from torchyard.api.volume.claims import VOLUME_MODES, check_access_modes, check_claim_spec, check_class_name
from torchyard.api.volume.sources import MORE_THAN_ONE, NAMES_IF_FORBIDDEN, NAMES_IN_MESSAGES, VOLUME_SOURCES

_RECLAIM = ("Delete", "Recycle", "Retain")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_RESIZE_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def validate_volume(volume: Object) -> list[FieldError]:
    """Validate a PersistentVolume."""
    errs: list[FieldError] = []
    spec = volume["spec"]
    modes, capacity = spec.get("accessModes") or [], spec.get("capacity") or {}
    if not modes:
        errs.append(field_errors.required("spec.accessModes"))
    check_access_modes(modes, "spec.accessModes", errs)
    _check_capacity(capacity, errs)
    checks.optional_enum(
        spec.get("persistentVolumeReclaimPolicy"), _RECLAIM, "spec.persistentVolumeReclaimPolicy", errs
    )
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            detail = "must specify required node constraints"
            errs.append(field_errors.required("spec.nodeAffinity.required", detail))
        else:
            check_node_selector(affinity["required"], "spec.nodeAffinity.required", errs)
    _check_source(spec, errs)
    check_class_name(spec.get("storageClassName"), "spec.storageClassName", errs)
    checks.optional_enum(spec.get("volumeMode"), VOLUME_MODES, "spec.volumeMode", errs)
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        if not attributes:
            errs.append(field_errors.required("spec.volumeAttributesClassName", "an empty string is disallowed"))
        check_class_name(attributes, "spec.volumeAttributesClassName", errs)
        if spec.get("csi") is None:
            detail = "has to be specified when using volumeAttributesClassName"
            errs.append(field_errors.required("spec.csi", detail))
    return errs


def _check_capacity(capacity: dict[str, Any], errs: list[FieldError]) -> None:
    if not capacity:
        errs.append(field_errors.required("spec.capacity"))
    if list(capacity) != ["storage"]:
        value = dict(sorted(capacity.items())) or None
        errs.append(field_errors.not_supported("spec.capacity", value, ("storage",)))
    for name, text in capacity.items():
        amount, field = quantity.parse(text), f"spec.capacity[{name}]"
        if amount.value < 0:
            errs.append(field_errors.invalid(field, amount.value, "must be a valid resource quantity"))
        if amount.nano <= 0:
            errs.append(field_errors.invalid(field, str(amount), checks.NOT_POSITIVE))


def _check_source(spec: Object, errs: list[FieldError]) -> None:
    kinds = [kind for kind in VOLUME_SOURCES if spec.get(kind) is not None]
    if not kinds:
        errs.append(field_errors.required("spec", "must specify a volume type"))
        return
    kind = kinds[0]
    VOLUME_SOURCES[kind](spec[kind], f"spec.{NAMES_IN_MESSAGES.get(kind, kind)}", errs)
    for extra in kinds[1:]:
        if extra == "flexVolume":
            # upstream does not count this source
            VOLUME_SOURCES[extra](spec[extra], f"spec.{extra}", errs)
        else:
            errs.append(field_errors.forbidden(f"spec.{NAMES_IF_FORBIDDEN.get(extra, extra)}", MORE_THAN_ONE))
    if kind == "local" and spec.get("nodeAffinity") is None:
        errs.append(field_errors.required("spec.nodeAffinity", "Local volume requires node affinity"))
    root = (spec.get("hostPath") or {}).get("path")
    if root == "/" and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        errs.append(field_errors.forbidden("spec.persistentVolumeReclaimPolicy", detail))


def validate_volume_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_volume(new)
    spec, before = new["spec"], old["spec"]
    source, source_before = ({kind: part.get(kind) for kind in VOLUME_SOURCES} for part in (spec, before))
    csi, csi_before = source.get("csi"), source_before.get("csi")
    if csi and csi_before and csi_before.get("controllerExpandSecretRef") is None:
        # this secret may be added later
        source["csi"] = {key: value for key, value in csi.items() if key != "controllerExpandSecretRef"}
    if changed := format_diff(source_before, source):
        detail = f"spec.persistentvolumesource is immutable after creation\n{changed}"
        errs.append(field_errors.forbidden("spec.persistentvolumesource", detail))
    checks.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode", errs)
    affinity = spec.get("nodeAffinity")
    if before.get("nodeAffinity") is not None and not semantically_equal(affinity, before["nodeAffinity"]):
        detail = f"{names.IMMUTABLE}, except for updating from beta label to GA"
        errs.append(field_errors.invalid("nodeAffinity", affinity, detail))
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        detail = "update from non-nil value to nil is forbidden"
        errs.append(field_errors.forbidden("spec.volumeAttributesClassName", detail))
    return errs


def validate_claim(claim: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    check_claim_spec(claim["spec"], "spec", errs)
    return errs


def validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update of a claim. The spec is immutable, so that quotas hold; a bound claim may grow."""
    errs = validate_claim(new)
    spec, before = new["spec"], old["spec"]
    compared, compared_before = dict(spec), dict(before)
    if not before.get("volumeName"):
        compared_before["volumeName"] = spec.get("volumeName")
    _check_class_change(new, old, compared, errs)
    if (new.get("status") or {}).get("phase") == "Bound":
        resources = dict(compared.get("resources") or {})
        if resources.get("requests"):
            was = ((before.get("resources") or {}).get("requests") or {}).get("storage")
            resources["requests"] = {**resources["requests"], "storage": was}
        compared["resources"] = resources
        if spec.get("volumeAttributesClassName") is not None:
            compared["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    if changed := format_diff(compared_before, compared):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName "
            f"for bound claims\n{changed}"
        )
        errs.append(field_errors.forbidden("spec", detail))
    _check_shrink(new, old, errs)
    checks.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode", errs)
    return errs


def _check_class_change(new: Object, old: Object, compared: Object, errs: list[FieldError]) -> None:
    """Allow a claim without a class to get one, through the old annotation or the field."""
    annotations, was = (obj["metadata"].get("annotations") or {} for obj in (new, old))
    name, name_before = new["spec"].get("storageClassName"), old["spec"].get("storageClassName")
    annotated = was.get(_CLASS_ANNOTATION)
    moved = annotated is not None and name_before is None and name == annotated
    if moved and annotations.get(_CLASS_ANNOTATION) in (None, annotated):
        compared.pop("storageClassName", None)
        return
    if annotations.get(_CLASS_ANNOTATION, "") != (annotated or ""):
        field = f"metadata.annotations.{_CLASS_ANNOTATION}"
        errs.append(field_errors.invalid(field, annotations.get(_CLASS_ANNOTATION, ""), names.IMMUTABLE))
    if name is not None and name_before is None and annotated in (None, name):
        compared.pop("storageClassName", None)


def _storage(holder: Object | None) -> quantity.Quantity:
    return quantity.parse((holder or {}).get("storage") or "0")


def _check_shrink(new: Object, old: Object, errs: list[FieldError]) -> None:
    size, before = (_storage((obj["spec"].get("resources") or {}).get("requests")) for obj in (new, old))
    if size < before and size <= _storage((old.get("status") or {}).get("capacity")):
        field = "spec.resources.requests.storage"
        errs.append(field_errors.forbidden(field, "field can not be less than status.capacity"))


def validate_claim_status(new: Object, _old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    status = new.get("status") or {}
    if not new["spec"].get("accessModes"):
        errs.append(field_errors.required("Spec.accessModes"))
    for name, text in (status.get("capacity") or {}).items():
        _check_basic(quantity.parse(text), f"status.capacity[{name}]", errs)
    for name, state in (status.get("allocatedResourceStatuses") or {}).items():
        field = "status.allocatedResourceStatus"
        _check_claim_resource(name, field, errs)
        if state not in _RESIZE_STATES:
            errs.append(field_errors.not_supported(field, name, _RESIZE_STATES))
    for name, text in (status.get("allocatedResources") or {}).items():
        if _check_claim_resource(name, "status.allocatedResources", errs):
            field = f"status.allocatedResources[{name}]"
            amount = quantity.parse(text)
            _check_basic(amount, field, errs)
            compute_resources.check_quantity("storage", amount, field, errs)
    return errs


def _check_basic(amount: quantity.Quantity, field: str, errs: list[FieldError]) -> None:
    if amount.value < 0:
        errs.append(field_errors.invalid(field, amount.value, "must be a valid resource quantity"))


def _check_claim_resource(name: str, field: str, errs: list[FieldError]) -> bool:
    if problems := names.qualified_name_problems(name):
        checks.report_problems(problems, field, name, errs)
        return False
    if compute_resources.is_native(name) and name != "storage":
        errs.append(field_errors.not_supported(field, name, ("storage",)))
        return False
    return True


def validate_capacity_object(capacity: Object) -> list[FieldError]:
    """Validate a CSIStorageCapacity."""
    errs: list[FieldError] = []
    errs += selectors.validate_object(capacity.get("nodeTopology"), "nodeTopology")
    name = capacity.get("storageClassName") or ""
    checks.report_problems(names.subdomain_problems(name), "storageClassName", name, errs)
    for field in ("capacity", "maximumVolumeSize"):
        text = capacity.get(field)
        if text is not None and quantity.parse(text).nano < 0:
            label = "capacity" if field == "maximumVolumeSize" and capacity.get("capacity") is None else field
            errs.append(field_errors.invalid(label, quantity.canonical(text), names.NOT_NEGATIVE))
            break
    return errs
