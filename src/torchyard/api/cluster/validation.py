"""What is valid in namespaces, nodes, secrets and the small kinds, and what of them may change."""

from __future__ import annotations

import base64
import json
from typing import Any

from torchyard.api import amounts, checks, faults, names, quantity
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault
from torchyard.api.pod.scheduling import EFFECTS, check_tolerations

MAX_SIZE = 1024 * 1024
_WHEN_IMMUTABLE = "field is immutable when `immutable` is set"
_SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def validate_namespace(namespace: Object) -> list[Fault]:
    found: list[Fault] = []
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        _check_finalizer(name, "spec.finalizers", found)
    return found


def _check_finalizer(name: str, field: str, found: list[Fault]) -> None:
    checks.told(names.qualified_name_problems(name), field, name, found)
    if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        found.append(faults.invalid(field, name, detail))


def validate_namespace_status(new: Object, _old: Object) -> list[Fault]:
    phase = (new.get("status") or {}).get("phase") or ""
    if new["metadata"].get("deletionTimestamp"):
        if phase != "Terminating":
            detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [faults.invalid("status.Phase", phase, detail)]
    elif phase != "Active":
        return [faults.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    return []


def validate_node(node: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = node.get("spec") or {}
    _check_taints(spec.get("taints") or [], found)
    _check_node_amounts(node.get("status") or {}, found)
    ranges = spec.get("podCIDRs") or []
    valid = [checks.cidr(text, f"spec.podCIDRs[{index}]", found) for index, text in enumerate(ranges)]
    families = {":" in text for text in ranges}
    if len(ranges) > 1 and all(valid) and (len(ranges) > 2 or len(families) < 2):
        detail = "may specify no more than one CIDR for each IP family"
        found.append(faults.invalid("spec.podCIDRs", ranges, detail))
    for index, text in enumerate(ranges):
        if text in ranges[:index]:
            found.append(faults.duplicate(f"spec.podCIDRs[{index}]", text))
    return found


def _check_taints(taints: list[Object], found: list[Fault]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        checks.told(names.qualified_name_problems(key), f"{at}.key", key, found)
        if problems := names.label_value_problems(value):
            found.append(faults.invalid(f"{at}.value", value, ";".join(problems)))
        checks.one_of(effect, EFFECTS, f"{at}.effect", found)
        if (key, effect) in seen:
            detail = "taints must be unique by key and effect pair"
            found.append(Fault("FieldValueDuplicate", at, f"Duplicate value: {faults.shown(taint)}: {detail}"))
        seen.add((key, effect))


def _check_node_amounts(status: Object, found: list[Fault]) -> None:
    for kind in ("capacity", "allocatable"):
        for name, text in (status.get(kind) or {}).items():
            amounts.check_amount(name, quantity.parse(text), f"status.{kind}.{name}", found)


def validate_node_update(new: Object, old: Object) -> list[Fault]:
    """A change by the main endpoint; what is wrong with taints and amounts is told twice, as upstream does."""
    return validate_node(new) + validate_node_status(new, old)


def validate_node_status(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    _check_node_amounts(new.get("status") or {}, found)
    seen: list[Object] = []
    for index, address in enumerate((new.get("status") or {}).get("addresses") or ()):
        if address in seen:
            found.append(faults.duplicate(f"status.addresses[{index}]", address))
        seen.append(address)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    was = before.get("podCIDRs") or []
    if was and (spec.get("podCIDRs") or []) != was:
        detail = 'node updates may not change podCIDR except from "" to valid'
        found.append(faults.forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        detail = 'node updates may not change providerID except from "" to valid'
        found.append(faults.forbidden("spec.providerID", detail))
    _check_taints(spec.get("taints") or [], found)
    return found


def validate_config_map(config_map: Object) -> list[Fault]:
    found: list[Fault] = []
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    size = 0
    for key, text in data.items():
        _check_key(key, f"data[{key}]", found)
        if key in binary:
            found.append(faults.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(text) if text.isascii() else len(text.encode())
    for key, text in binary.items():
        _check_key(key, f"binaryData[{key}]", found)
        size += len(text) * 3 // 4 - text.count("=")
    if size > MAX_SIZE:
        # the whole object is meant
        found.append(faults.too_long("[]", MAX_SIZE))
    return found


def _check_key(key: str, field: str, found: list[Fault]) -> None:
    if not checks.is_config_key(key) or key.startswith("."):
        checks.told(checks.config_key_problems(key), field, key, found)


def _check_frozen(new: Object, old: Object, fields: tuple[str, ...], found: list[Fault]) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        found.append(faults.forbidden("immutable", _WHEN_IMMUTABLE))
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            found.append(faults.forbidden(field, _WHEN_IMMUTABLE))


def validate_config_map_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    _check_frozen(new, old, ("data", "binaryData"), found)
    return found + validate_config_map(new)


def validate_secret(secret: Object) -> list[Fault]:
    found: list[Fault] = []
    data = secret.get("data") or {}
    for key in data:
        _check_key(key, f"data[{key}]", found)
    if sum(len(text or "") * 3 // 4 - (text or "").count("=") for text in data.values()) > MAX_SIZE:
        found.append(faults.too_long("data", MAX_SIZE))
    _check_secret_type(secret, data, found)
    return found


def _check_secret_type(secret: Object, data: dict[str, str], found: list[Fault]) -> None:
    def needs(*keys: str) -> None:
        found.extend(faults.required(f"data[{key}]") for key in keys if key not in data)

    match secret.get("type"):
        case "kubernetes.io/service-account-token":
            if not (secret["metadata"].get("annotations") or {}).get(_SERVICE_ACCOUNT_NAME):
                found.append(faults.required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]"))
        case "kubernetes.io/dockercfg":
            _check_json(data, ".dockercfg", found)
        case "kubernetes.io/dockerconfigjson":
            _check_json(data, ".dockerconfigjson", found)
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                needs("username", "password")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                found.append(faults.required("data[ssh-privatekey]"))
        case "kubernetes.io/tls":
            needs("tls.crt", "tls.key")


def _check_json(data: dict[str, str], key: str, found: list[Fault]) -> None:
    if key not in data:
        found.append(faults.required(f"data[{key}]"))
        return
    problem = _json_problem(base64.b64decode(data[key] or ""))
    if problem:
        found.append(faults.invalid(f"data[{key}]", "<secret contents redacted>", problem))


_JSON_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def _json_problem(content: bytes) -> str:
    """Why something is no JSON object, in Go's words for the common cases."""
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


def validate_secret_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    checks.immutable(new.get("type"), old.get("type"), "type", found)
    _check_frozen(new, old, ("data",), found)
    return found + validate_secret(new)


def validate_lease(lease: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        found.append(faults.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    checks.nonnegative(spec.get("leaseTransitions"), "spec.leaseTransitions", found)
    return found


def validate_priority_class(priority_class: Object) -> list[Fault]:
    found: list[Fault] = []
    name, value = priority_class["metadata"].get("name") or "", priority_class.get("value") or 0
    if name.startswith("system-"):
        if problem := _system_problem(name, value, priority_class):
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            found.append(faults.forbidden("metadata.name", detail + problem))
    elif value > _HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        found.append(faults.forbidden("value", detail))
    policies = ("PreemptLowerPriority", "Never")
    checks.one_of(priority_class.get("preemptionPolicy"), policies, "preemptionPolicy", found)
    return found


def _system_problem(name: str, value: int, priority_class: Object) -> str:
    known = _SYSTEM_PRIORITIES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    if priority_class.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def validate_priority_class_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    if (new.get("value") or 0) != (old.get("value") or 0):
        found.append(faults.forbidden("value", "may not be changed in an update."))
    policy = new.get("preemptionPolicy")
    checks.immutable(policy, old.get("preemptionPolicy"), "preemptionPolicy", found)
    return found


def validate_runtime_class(runtime_class: Object) -> list[Fault]:
    found: list[Fault] = []
    handler = runtime_class.get("handler") or ""
    checks.told(names.label_problems(handler), "handler", handler, found)
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if overhead:
        amounts.check_overhead(overhead, "overhead", found)
    scheduling = runtime_class.get("scheduling") or {}
    found += names.validate_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    seen: list[Object] = []
    tolerations = scheduling.get("tolerations") or []
    check_tolerations(tolerations, "scheduling.tolerations.tolerations", found)
    for index, toleration in enumerate(tolerations):
        if toleration in seen:
            found.append(faults.duplicate(f"scheduling.tolerations[{index}]", toleration))
        seen.append(toleration)
    return found


def validate_runtime_class_update(new: Object, old: Object) -> list[Fault]:
    found: list[Fault] = []
    checks.immutable(new.get("handler"), old.get("handler"), "handler", found)
    return found
