"""Validation of namespaces, nodes, secrets and the small core kinds on create and update."""

from __future__ import annotations

import base64
import json
from typing import Any

from torchyard.api import checks, compute_resources, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.scheduling import EFFECTS, check_tolerations

MAX_SIZE = 1024 * 1024
_WHEN_IMMUTABLE = "field is immutable when `immutable` is set"
_SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def validate_namespace(namespace: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        _check_finalizer(name, "spec.finalizers", errs)
    return errs


def validate_finalizers(namespace: Object) -> list[FieldError]:
    """Validate the finalizers that the `finalize` subresource sets, which upstream names by their index."""
    errs: list[FieldError] = []
    for index, name in enumerate((namespace.get("spec") or {}).get("finalizers") or ()):
        _check_finalizer(name, f"spec.finalizers[{index}]", errs)
    return errs


def _check_finalizer(name: str, field: str, errs: list[FieldError]) -> None:
    checks.report_problems(names.qualified_name_problems(name), field, name, errs)
    if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errs.append(field_errors.invalid(field, name, detail))


def validate_namespace_status(new: Object, _old: Object) -> list[FieldError]:
    phase = (new.get("status") or {}).get("phase") or ""
    if new["metadata"].get("deletionTimestamp"):
        if phase != "Terminating":
            detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [field_errors.invalid("status.Phase", phase, detail)]
    elif phase != "Active":
        return [field_errors.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    return []


def validate_node(node: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = node.get("spec") or {}
    _check_taints(spec.get("taints") or [], errs)
    _check_node_amounts(node.get("status") or {}, errs)
    ranges = spec.get("podCIDRs") or []
    valid = [checks.cidr(text, f"spec.podCIDRs[{index}]", errs) for index, text in enumerate(ranges)]
    families = {":" in text for text in ranges}
    if len(ranges) > 1 and all(valid) and (len(ranges) > 2 or len(families) < 2):
        detail = "may specify no more than one CIDR for each IP family"
        errs.append(field_errors.invalid("spec.podCIDRs", ranges, detail))
    for index, (text, is_repeated) in enumerate(zip(ranges, checks.repetitions(ranges), strict=True)):
        if is_repeated:
            errs.append(field_errors.duplicate(f"spec.podCIDRs[{index}]", text))
    return errs


def _check_taints(taints: list[Object], errs: list[FieldError]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        checks.report_problems(names.qualified_name_problems(key), f"{at}.key", key, errs)
        if problems := names.label_value_problems(value):
            errs.append(field_errors.invalid(f"{at}.value", value, ";".join(problems)))
        checks.required_enum(effect, EFFECTS, f"{at}.effect", errs)
        if (key, effect) in seen:
            detail = "taints must be unique by key and effect pair"
            errs.append(
                FieldError("FieldValueDuplicate", at, f"Duplicate value: {field_errors.format_value(taint)}: {detail}")
            )
        seen.add((key, effect))


def _check_node_amounts(status: Object, errs: list[FieldError]) -> None:
    for kind in ("capacity", "allocatable"):
        for name, text in (status.get(kind) or {}).items():
            compute_resources.check_quantity(name, quantity.parse(text), f"status.{kind}.{name}", errs)


def validate_node_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update. Errors of taints and of quantities are reported twice, as upstream reports them."""
    return validate_node(new) + validate_node_status(new, old)


def validate_node_status(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    _check_node_amounts(new.get("status") or {}, errs)
    addresses = (new.get("status") or {}).get("addresses") or []
    for index, (address, is_repeated) in enumerate(zip(addresses, checks.repetitions(addresses), strict=True)):
        if is_repeated:
            errs.append(field_errors.duplicate(f"status.addresses[{index}]", address))
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    was = before.get("podCIDRs") or []
    if was and (spec.get("podCIDRs") or []) != was:
        detail = 'node updates may not change podCIDR except from "" to valid'
        errs.append(field_errors.forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        detail = 'node updates may not change providerID except from "" to valid'
        errs.append(field_errors.forbidden("spec.providerID", detail))
    _check_taints(spec.get("taints") or [], errs)
    return errs


def validate_config_map(config_map: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    size = 0
    for key, text in data.items():
        _check_key(key, f"data[{key}]", errs)
        if key in binary:
            errs.append(field_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(text) if text.isascii() else len(text.encode())
    for key, text in binary.items():
        _check_key(key, f"binaryData[{key}]", errs)
        size += len(text) * 3 // 4 - text.count("=")
    if size > MAX_SIZE:
        # the error concerns the whole object
        errs.append(field_errors.too_long("[]", MAX_SIZE))
    return errs


def _check_key(key: str, field: str, errs: list[FieldError]) -> None:
    if not checks.is_config_key(key) or key.startswith("."):
        checks.report_problems(checks.config_key_problems(key), field, key, errs)


def _check_frozen(new: Object, old: Object, fields: tuple[str, ...], errs: list[FieldError]) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        errs.append(field_errors.forbidden("immutable", _WHEN_IMMUTABLE))
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            errs.append(field_errors.forbidden(field, _WHEN_IMMUTABLE))


def validate_config_map_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    _check_frozen(new, old, ("data", "binaryData"), errs)
    return errs + validate_config_map(new)


def validate_secret(secret: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    data = secret.get("data") or {}
    for key in data:
        _check_key(key, f"data[{key}]", errs)
    if sum(len(text or "") * 3 // 4 - (text or "").count("=") for text in data.values()) > MAX_SIZE:
        errs.append(field_errors.too_long("data", MAX_SIZE))
    _check_secret_type(secret, data, errs)
    return errs


def _check_secret_type(secret: Object, data: dict[str, str], errs: list[FieldError]) -> None:
    def needs(*keys: str) -> None:
        errs.extend(field_errors.required(f"data[{key}]") for key in keys if key not in data)

    match secret.get("type"):
        case "kubernetes.io/service-account-token":
            if not (secret["metadata"].get("annotations") or {}).get(_SERVICE_ACCOUNT_NAME):
                errs.append(field_errors.required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]"))
        case "kubernetes.io/dockercfg":
            _check_json(data, ".dockercfg", errs)
        case "kubernetes.io/dockerconfigjson":
            _check_json(data, ".dockerconfigjson", errs)
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                needs("username", "password")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                errs.append(field_errors.required("data[ssh-privatekey]"))
        case "kubernetes.io/tls":
            needs("tls.crt", "tls.key")


def _check_json(data: dict[str, str], key: str, errs: list[FieldError]) -> None:
    if key not in data:
        errs.append(field_errors.required(f"data[{key}]"))
        return
    problem = _json_problem(base64.b64decode(data[key] or ""))
    if problem:
        errs.append(field_errors.invalid(f"data[{key}]", "<secret contents redacted>", problem))


_JSON_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def _json_problem(content: bytes) -> str:
    """Return why the content is not a JSON object, with Go's messages for the common cases."""
    text = content.decode(errors="replace")
    if not text.strip():
        return "unexpected end of JSON input"
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        if at >= len(text):
            return "unexpected end of JSON input"
        return f"invalid character '{text[at]}' looking for beginning of value"
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {_JSON_KINDS[type(value)]} into Go value of type map[string]interface {{}}"


def validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    checks.immutable(new.get("type"), old.get("type"), "type", errs)
    _check_frozen(new, old, ("data",), errs)
    return errs + validate_secret(new)


def validate_lease(lease: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errs.append(field_errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    checks.nonnegative(spec.get("leaseTransitions"), "spec.leaseTransitions", errs)
    return errs


def validate_priority_class(priority_class: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    name, value = priority_class["metadata"].get("name") or "", priority_class.get("value") or 0
    if name.startswith("system-"):
        if problem := _system_problem(name, value, priority_class):
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            errs.append(field_errors.forbidden("metadata.name", detail + problem))
    elif value > _HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        errs.append(field_errors.forbidden("value", detail))
    policies = ("PreemptLowerPriority", "Never")
    checks.required_enum(priority_class.get("preemptionPolicy"), policies, "preemptionPolicy", errs)
    return errs


def _system_problem(name: str, value: int, priority_class: Object) -> str:
    known = _SYSTEM_PRIORITIES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    if priority_class.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def validate_priority_class_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        errs.append(field_errors.forbidden("value", "may not be changed in an update."))
    policy = new.get("preemptionPolicy")
    checks.immutable(policy, old.get("preemptionPolicy"), "preemptionPolicy", errs)
    return errs


def validate_runtime_class(runtime_class: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    handler = runtime_class.get("handler") or ""
    checks.report_problems(names.label_problems(handler), "handler", handler, errs)
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if overhead:
        compute_resources.check_overhead(overhead, "overhead", errs)
    scheduling = runtime_class.get("scheduling") or {}
    errs += names.validate_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    check_tolerations(tolerations, "scheduling.tolerations.tolerations", errs)
    for index, (toleration, is_repeated) in enumerate(zip(tolerations, checks.repetitions(tolerations), strict=True)):
        if is_repeated:
            errs.append(field_errors.duplicate(f"scheduling.tolerations[{index}]", toleration))
    return errs


def validate_runtime_class_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    checks.immutable(new.get("handler"), old.get("handler"), "handler", errs)
    return errs
