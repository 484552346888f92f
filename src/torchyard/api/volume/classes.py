"""Validation of storage classes, volume attributes classes, and CSI drivers, nodes and attachments."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.volume.sources import check_driver_name

_MAX_PARAMETERS = 512
_MAX_PARAMETERS_SIZE = 256 * 1024
_TOKEN_SECONDS = 10 * 60
_NODE_ID_LENGTH = 256


def validate_storage_class(storage_class: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    provisioner = (storage_class.get("provisioner") or "").lower()
    if not provisioner:
        errs.append(field_errors.required("provisioner"))
    else:
        checks.report_problems(names.qualified_name_problems(provisioner), "provisioner", provisioner, errs)
    _check_parameters(storage_class.get("parameters") or {}, errs)
    checks.optional_enum(storage_class.get("reclaimPolicy") or None, ("Delete", "Retain"), "reclaimPolicy", errs)
    modes = ("Immediate", "WaitForFirstConsumer")
    checks.optional_enum(storage_class.get("volumeBindingMode"), modes, "volumeBindingMode", errs)
    terms = storage_class.get("allowedTopologies") or []
    # upstream also compares with as many empty entries: an empty term is always a duplicate
    seen: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter({frozenset(): len(terms)})
    for index, term in enumerate(terms):
        at = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = _check_topology(term, at, errs)
        errs += [field_errors.duplicate(at, "")] * min(seen[expressions], field_errors.MAX_ERRORS - len(errs))
        seen[expressions] += 1
    return errs


def _check_parameters(parameters: dict[str, str], errs: list[FieldError], *, needed: bool = False) -> None:
    if needed and not parameters:
        errs.append(field_errors.required("parameters", "must contain at least one key/value pair"))
    if len(parameters) > _MAX_PARAMETERS:
        errs.append(field_errors.too_long("parameters", _MAX_PARAMETERS))
        return
    if any(not key for key in parameters):
        errs.append(field_errors.invalid("parameters", "", "field can not be empty."))
    if sum(len(key) + len(value) for key, value in parameters.items()) > _MAX_PARAMETERS_SIZE:
        errs.append(field_errors.too_long("parameters", _MAX_PARAMETERS_SIZE))


def _check_topology(term: Object, at: str, errs: list[FieldError]) -> frozenset[tuple[str, frozenset[str]]]:
    known: dict[str, frozenset[str]] = {}
    for index, requirement in enumerate(term.get("matchLabelExpressions") or ()):
        field, key, values = f"{at}[{index}]", requirement.get("key") or "", requirement.get("values") or []
        if not values:
            errs.append(field_errors.required(f"{field}.values"))
        for number, (value, is_repeated) in enumerate(zip(values, checks.repetitions(values), strict=True)):
            if is_repeated:
                errs.append(field_errors.duplicate(f"{field}.values[{number}]", value))
        checks.report_problems(names.qualified_name_problems(key), f"{field}.key", key, errs)
        if key in known:
            errs.append(field_errors.duplicate(f"{field}.key", key))
        known[key] = frozenset(values)
    return frozenset(known.items())


def validate_storage_class_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_storage_class(new)
    for field, detail in (
        ("parameters", "updates to parameters are forbidden."),
        ("provisioner", "updates to provisioner are forbidden."),
        ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
    ):
        if (new.get(field) or None) != (old.get(field) or None):
            errs.append(field_errors.forbidden(field, detail))
    mode = new.get("volumeBindingMode")
    checks.immutable(mode, old.get("volumeBindingMode"), "volumeBindingMode", errs)
    return errs


def validate_attributes_class(attributes: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    driver = attributes.get("driverName") or ""
    if not driver:
        errs.append(field_errors.required("driverName"))
    else:
        checks.report_problems(names.qualified_name_problems(driver.lower()), "driverName", driver.lower(), errs)
    _check_parameters(attributes.get("parameters") or {}, errs, needed=True)
    return errs


def validate_attributes_class_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    if new.get("driverName") != old.get("driverName"):
        errs.append(field_errors.forbidden("driverName", "updates to driverName are forbidden."))
    if (new.get("parameters") or {}) != (old.get("parameters") or {}):
        errs.append(field_errors.forbidden("parameters", "updates to parameters are forbidden."))
    return errs


def validate_driver(driver: Object) -> list[FieldError]:
    """Validate a CSIDriver. The name rule of the kind covers its name."""
    errs: list[FieldError] = []
    spec = driver["spec"]
    for field in ("attachRequired", "podInfoOnMount", "storageCapacity"):
        if spec.get(field) is None:
            errs.append(field_errors.required(f"spec.{field}"))
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    checks.optional_enum(spec.get("fsGroupPolicy"), policies, "spec.fsGroupPolicy", errs)
    seen: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        at, audience, seconds = (
            f"spec.tokenRequests[{index}]",
            request.get("audience") or "",
            request.get("expirationSeconds"),
        )
        if audience in seen:
            errs.append(field_errors.duplicate(f"{at}.audience", audience))
            continue
        seen.add(audience)
        if seconds is not None and seconds < _TOKEN_SECONDS:
            detail = "may not specify a duration less than 10 minutes"
            errs.append(field_errors.invalid(f"{at}.expirationSeconds", seconds, detail))
        elif seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            errs.append(field_errors.invalid(f"{at}.expirationSeconds", seconds, detail))
    for mode in spec.get("volumeLifecycleModes") or ():
        checks.optional_enum(mode, ("Persistent", "Ephemeral"), "spec.volumeLifecycleModes", errs)
    return errs


def validate_driver_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_driver(new)
    attach, attach_before = new["spec"].get("attachRequired"), old["spec"].get("attachRequired")
    checks.immutable(attach, attach_before, "spec.attachedRequired", errs)
    modes = "volumeLifecycleModes"
    checks.immutable(new["spec"].get(modes), old["spec"].get(modes), f"spec.{modes}", errs)
    return errs


def validate_csi_node(node: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for index, driver in enumerate((node.get("spec") or {}).get("drivers") or ()):
        at, name, node_id = f"spec.drivers[{index}]", driver.get("name") or "", driver.get("nodeID") or ""
        check_driver_name(name, f"{at}.name", errs)
        if not node_id:
            errs.append(field_errors.required(f"{at}.nodeID"))
        elif len(node_id) > _NODE_ID_LENGTH:
            errs.append(field_errors.invalid(f"{at}.nodeID", node_id, f"must be {_NODE_ID_LENGTH} characters or less"))
        count = (driver.get("allocatable") or {}).get("count")
        checks.nonnegative(count, f"{at}.allocatable.count", errs)
        if name in seen:
            errs.append(field_errors.duplicate(f"{at}.name", name))
        seen.add(name)
        _check_topology_keys(driver.get("topologyKeys") or [], at, errs)
    return errs


def _check_topology_keys(keys: list[str], at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not key:
            errs.append(field_errors.required(at))
        elif key in seen:
            errs.append(field_errors.duplicate(at, key))
        seen.add(key)
        checks.report_problems(names.qualified_name_problems(key), at, key, errs)


def validate_attachment(attachment: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec: dict[str, Any] = attachment.get("spec") or {}
    attacher, node, source = spec.get("attacher") or "", spec.get("nodeName") or "", spec.get("source") or {}
    if not attacher:
        errs.append(field_errors.required("spec.attacher"))
    one_of = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    named, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if inline is None and named is None:
        errs.append(field_errors.required("spec.source", one_of))
    elif inline is not None and named is not None:
        errs.append(field_errors.forbidden("spec.source", one_of))
    elif named == "":
        errs.append(
            field_errors.required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
        )
    checks.report_problems(names.subdomain_problems(node), "spec.nodeName", node, errs)
    check_driver_name(attacher, "spec.attacher", errs)
    if named:
        checks.report_problems(names.subdomain_problems(named), "spec.source.persistentVolumeName", named, errs)
    return errs


def validate_attachment_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    checks.immutable(new.get("spec"), old.get("spec"), "spec", errs)
    return errs
