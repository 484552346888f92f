"""Validation of references to pod fields (`fieldRef`, `resourceFieldRef`) and to keys of ConfigMaps and Secrets."""

from __future__ import annotations

import re

from torchyard.api import checks, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_KNOWN_FIELDS = frozenset((*ENV_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"))
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_subscripted = re.compile(r"([^\[\]]+)\['(.*)'\]").fullmatch


def check_field_ref(reference: Object, allowed: tuple[str, ...], field: str, errs: list[FieldError]) -> None:
    """Check a reference to a field of the pod."""
    version, path = reference.get("apiVersion"), reference.get("fieldPath")
    if not version:
        errs.append(field_errors.required(f"{field}.apiVersion"))
        return
    if not path:
        errs.append(field_errors.required(f"{field}.fieldPath"))
        return
    if path in allowed and version == "v1":
        return
    if version != "v1":
        problem = f"unsupported pod version: {version}"
    elif parts := _subscripted(path):
        base, subscript = parts.groups()
        if base in ("metadata.annotations", "metadata.labels"):
            name = subscript.lower() if base == "metadata.annotations" else subscript
            checks.report_problems(names.qualified_name_problems(name), field, name, errs)
            return
        problem = f"field label does not support subscript: {path}"
    elif path in _KNOWN_FIELDS:
        errs.append(field_errors.not_supported(f"{field}.fieldPath", path, allowed))
        return
    else:
        problem = f"field label not supported: {path}"
    errs.append(field_errors.invalid(f"{field}.fieldPath", path, f"error converting fieldPath: {problem}"))


def check_resource_ref(
    reference: Object, field: str, errs: list[FieldError], *, container_needed: bool = False
) -> None:
    """Check a reference to a request or limit of a container."""
    resource = reference.get("resource") or ""
    if container_needed and not reference.get("containerName"):
        errs.append(field_errors.required(f"{field}.containerName"))
    elif not resource:
        errs.append(field_errors.required(f"{field}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errs.append(field_errors.not_supported(f"{field}.resource", resource, _RESOURCES))
    divisor = quantity.parse(reference.get("divisor") or "0")
    if divisor:
        _check_divisor(resource, str(divisor), f"{field}.divisor", errs)


def _check_divisor(resource: str, divisor: str, field: str, errs: list[FieldError]) -> None:
    sizes = f"only divisor's values {', '.join(_SIZES)} are supported with the"
    if resource.endswith(".cpu"):
        if divisor not in ("1m", "1"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            errs.append(field_errors.invalid(field, resource, detail))
    elif divisor not in _SIZES:
        if resource.endswith(".memory"):
            errs.append(field_errors.invalid(field, resource, f"{sizes} memory resource"))
        elif resource.endswith(".ephemeral-storage"):
            errs.append(field_errors.invalid(field, resource, f"{sizes} local ephemeral storage resource"))
        elif resource.startswith(_HUGE_PAGES):
            errs.append(field_errors.invalid(field, resource, f"{sizes} hugepages resource"))


def check_key_ref(reference: Object, field: str, errs: list[FieldError]) -> None:
    """Check a reference to a key of a ConfigMap or Secret."""
    name, key = reference.get("name") or "", reference.get("key") or ""
    if problems := names.subdomain_problems(name):
        checks.report_problems(problems, f"{field}.name", name, errs)
    if not key:
        errs.append(field_errors.required(f"{field}.key"))
    elif not checks.is_config_key(key) or key.startswith("."):
        checks.report_problems(checks.config_key_problems(key), f"{field}.key", key, errs)
