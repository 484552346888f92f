"""Quota scopes: which objects a ResourceQuota counts."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pod.qos import quality_of_service


def counts(quota_spec: Object, resource: str, obj: Object) -> bool:
    """Whether an object is in every scope of a quota. All scopes but VolumeAttributesClass concern pods only."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in quota_spec.get("scopes") or ()]
    scopes += (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_holds(scope, resource, obj) for scope in scopes)


def _holds(scope: Object, resource: str, obj: Object) -> bool:
    spec = obj.get("spec") or {}
    name = scope.get("scopeName")
    if resource == "persistentvolumeclaims":
        return name == "VolumeAttributesClass" and _matches(scope, spec.get("volumeAttributesClassName") or "")
    if resource != "pods":
        return False
    match name:
        case "Terminating" | "NotTerminating":
            return bool(spec.get("activeDeadlineSeconds") is None) is (name == "NotTerminating")
        case "BestEffort" | "NotBestEffort":
            return (quality_of_service(obj) == "BestEffort") is (name == "BestEffort")
        case "PriorityClass":
            return _matches(scope, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec.get("affinity") or {})
    return False


def _matches(scope: Object, value: str) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "DoesNotExist":
            return not value
    return bool(value)


def _crosses_namespaces(affinity: Object) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        pod_terms = [
            *(terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
            *(
                preference.get("podAffinityTerm") or {}
                for preference in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            ),
        ]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in pod_terms):
            return True
    return False
