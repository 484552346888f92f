"""CRDs in the protected groups under k8s.io and kubernetes.io need an approval annotation."""

from __future__ import annotations

from typing import Literal

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

Approval = Literal["missing", "invalid", "bypassed", "approved"]

ANNOTATION = "api-approved.kubernetes.io"
_CONDITION = "KubernetesAPIApprovalPolicyConformant"
_MUST = f'protected groups must have approval annotation "{ANNOTATION}"'
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


def approval_errors(new: Object, old: Object | None) -> list[FieldError]:
    """The errors of the annotation; an update may keep an invalid one."""
    if not _is_protected(new):
        return []
    approval = _approval(new)
    if old is not None and approval == _approval(old):
        return []
    field = f"metadata.annotations[{ANNOTATION}]"
    if approval == "missing":
        return [field_errors.required(field, f"{_MUST}, {_SEE}")]
    if approval == "invalid":
        detail = f'{_MUST} with either a URL or a reason starting with "unapproved", {_SEE}'
        return [field_errors.invalid(field, _annotation_value(new), detail)]
    return []


def approval_condition(crd: Object) -> tuple[str, str, str, str] | None:
    """The condition (type, status, reason, message) of a CRD in a protected group."""
    if not _is_protected(crd):
        return None
    value = _annotation_value(crd)
    match _approval(crd):
        case "approved":
            return _CONDITION, "True", "ApprovedAnnotation", f"approved in {value}"
        case "bypassed":
            return _CONDITION, "False", "UnapprovedAnnotation", f"not approved: {field_errors.format_value(value)}"
        case "invalid":
            detail = f'{_MUST} with either a URL or a reason starting with "unapproved", {_SEE}'
            return _CONDITION, "False", "InvalidAnnotation", detail
    return _CONDITION, "False", "MissingAnnotation", f"{_MUST}, {_SEE}"


def _is_protected(crd: Object) -> bool:
    group = f".{(crd.get('spec') or {}).get('group') or ''}"
    return group.endswith((".k8s.io", ".kubernetes.io"))


def _annotation_value(crd: Object) -> str:
    return str(((crd.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION) or "")


def _approval(crd: Object) -> Approval:
    value = _annotation_value(crd)
    if not value:
        return "missing"
    if value.startswith("unapproved"):
        return "bypassed"
    scheme, _, host = value.partition("://")
    return "approved" if scheme and host else "invalid"
