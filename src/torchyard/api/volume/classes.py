"""Storage classes, volume attributes classes, and what CSI drivers say about themselves."""

from __future__ import annotations

from typing import Any

from torchyard.api import checks, faults, names
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault
from torchyard.api.volume.sources import check_driver_name

_MAX_PARAMETERS = 512
_MAX_PARAMETERS_SIZE = 256 * 1024
_TOKEN_SECONDS = 10 * 60
_NODE_ID_LENGTH = 256


def validate_storage_class(storage_class: Object) -> list[Fault]:
    found: list[Fault] = []
    provisioner = (storage_class.get("provisioner") or "").lower()
    if not provisioner:
        found.append(faults.required("provisioner"))
    else:
        checks.told(names.qualified_name_problems(provisioner), "provisioner", provisioner, found)
    _check_parameters(storage_class.get("parameters") or {}, found)
    checks.choice(storage_class.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", found)
    modes = ("Immediate", "WaitForFirstConsumer")
    checks.one_of(storage_class.get("volumeBindingMode"), modes, "volumeBindingMode", found)
    terms = storage_class.get("allowedTopologies") or []
    # upstream compares with as many empty places, too: a term that says nothing is always a duplicate
    seen: list[dict[str, set[str]]] = [{} for _ in terms]
    for index, term in enumerate(terms):
        at = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = _check_topology(term, at, found)
        found += [faults.duplicate(at, "")] * seen.count(expressions)
        seen.append(expressions)
    return found


def _check_parameters(parameters: dict[str, str], found: list[Fault], *, needed: bool = False) -> None:
    if needed and not parameters:
        found.append(faults.required("parameters", "must contain at least one key/value pair"))
    if len(parameters) > _MAX_PARAMETERS:
        found.append(faults.too_long("parameters", _MAX_PARAMETERS))
        return
    if any(not key for key in parameters):
        found.append(faults.invalid("parameters", "", "field can not be empty."))
    if sum(len(key) + len(value) for key, value in parameters.items()) > _MAX_PARAMETERS_SIZE:
        found.append(faults.too_long("parameters", _MAX_PARAMETERS_SIZE))


def _check_topology(term: Object, at: str, found: list[Fault]) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for index, requirement in enumerate(term.get("matchLabelExpressions") or ()):
        field, key, values = f"{at}[{index}]", requirement.get("key") or "", requirement.get("values") or []
        if not values:
            found.append(faults.required(f"{field}.values"))
        for number, value in enumerate(values):
            if value in values[:number]:
                found.append(faults.duplicate(f"{field}.values[{number}]", value))
        checks.told(names.qualified_name_problems(key), f"{field}.key", key, found)
        if key in known:
            found.append(faults.duplicate(f"{field}.key", key))
        known[key] = set(values)
    return known


def validate_storage_class_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    for field, detail in (
        ("parameters", "updates to parameters are forbidden."),
        ("provisioner", "updates to provisioner are forbidden."),
        ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
    ):
        if (new.get(field) or None) != (old.get(field) or None):
            found.append(faults.forbidden(field, detail))
    mode = new.get("volumeBindingMode")
    checks.immutable(mode, old.get("volumeBindingMode"), "volumeBindingMode", found)
    return found


def validate_attributes_class(attributes: Object) -> list[Fault]:
    found: list[Fault] = []
    driver = attributes.get("driverName") or ""
    if not driver:
        found.append(faults.required("driverName"))
    else:
        checks.told(names.qualified_name_problems(driver.lower()), "driverName", driver.lower(), found)
    _check_parameters(attributes.get("parameters") or {}, found, needed=True)
    return found


def validate_attributes_class_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    if new.get("driverName") != old.get("driverName"):
        found.append(faults.forbidden("driverName", "updates to driverName are forbidden."))
    if (new.get("parameters") or {}) != (old.get("parameters") or {}):
        found.append(faults.forbidden("parameters", "updates to parameters are forbidden."))
    return found


def validate_driver(driver: Object) -> list[Fault]:
    """A CSIDriver: its name is checked by the rule of its kind."""
    found: list[Fault] = []
    spec = driver["spec"]
    for field in ("attachRequired", "podInfoOnMount", "storageCapacity"):
        if spec.get(field) is None:
            found.append(faults.required(f"spec.{field}"))
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    checks.choice(spec.get("fsGroupPolicy"), policies, "spec.fsGroupPolicy", found)
    seen: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        at, audience, seconds = (
            f"spec.tokenRequests[{index}]",
            request.get("audience") or "",
            request.get("expirationSeconds"),
        )
        if audience in seen:
            found.append(faults.duplicate(f"{at}.audience", audience))
            continue
        seen.add(audience)
        if seconds is not None and seconds < _TOKEN_SECONDS:
            detail = "may not specify a duration less than 10 minutes"
            found.append(faults.invalid(f"{at}.expirationSeconds", seconds, detail))
        elif seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            found.append(faults.invalid(f"{at}.expirationSeconds", seconds, detail))
    for mode in spec.get("volumeLifecycleModes") or ():
        checks.choice(mode, ("Persistent", "Ephemeral"), "spec.volumeLifecycleModes", found)
    return found


def validate_driver_update(new: Object, old: Object) -> list[Fault]:
    found = validate_driver(new)
    attach, attach_before = new["spec"].get("attachRequired"), old["spec"].get("attachRequired")
    checks.immutable(attach, attach_before, "spec.attachedRequired", found)
    modes = "volumeLifecycleModes"
    checks.immutable(new["spec"].get(modes), old["spec"].get(modes), f"spec.{modes}", found)
    return found


def validate_csi_node(node: Object) -> list[Fault]:
    found: list[Fault] = []
    seen: set[str] = set()
    for index, driver in enumerate((node.get("spec") or {}).get("drivers") or ()):
        at, name, node_id = f"spec.drivers[{index}]", driver.get("name") or "", driver.get("nodeID") or ""
        check_driver_name(name, f"{at}.name", found)
        if not node_id:
            found.append(faults.required(f"{at}.nodeID"))
        elif len(node_id) > _NODE_ID_LENGTH:
            found.append(faults.invalid(f"{at}.nodeID", node_id, f"must be {_NODE_ID_LENGTH} characters or less"))
        count = (driver.get("allocatable") or {}).get("count")
        checks.nonnegative(count, f"{at}.allocatable.count", found)
        if name in seen:
            found.append(faults.duplicate(f"{at}.name", name))
        seen.add(name)
        _check_topology_keys(driver.get("topologyKeys") or [], at, found)
    return found


def _check_topology_keys(keys: list[str], at: str, found: list[Fault]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not key:
            found.append(faults.required(at))
        elif key in seen:
            found.append(faults.duplicate(at, key))
        seen.add(key)
        checks.told(names.qualified_name_problems(key), at, key, found)


def validate_attachment(attachment: Object) -> list[Fault]:
    found: list[Fault] = []
    spec: dict[str, Any] = attachment.get("spec") or {}
    attacher, node, source = spec.get("attacher") or "", spec.get("nodeName") or "", spec.get("source") or {}
    if not attacher:
        found.append(faults.required("spec.attacher"))
    one_of = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    named, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if inline is None and named is None:
        found.append(faults.required("spec.source", one_of))
    elif inline is not None and named is not None:
        found.append(faults.forbidden("spec.source", one_of))
    elif named == "":
        found.append(faults.required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"))
    checks.told(names.subdomain_problems(node), "spec.nodeName", node, found)
    check_driver_name(attacher, "spec.attacher", found)
    if named:
        checks.told(names.subdomain_problems(named), "spec.source.persistentVolumeName", named, found)
    return found


def validate_attachment_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    checks.immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found
