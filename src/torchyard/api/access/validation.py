"""Validation of roles and role bindings on create and update."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

GROUP = "rbac.authorization.k8s.io"


def default_binding(binding: Object) -> None:
    """Set the API group of the subjects and of the role reference where it is missing."""
    role = binding.get("roleRef")
    if role is not None and not role.get("apiGroup"):
        role["apiGroup"] = GROUP
    for subject in binding.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


def validate_role(role: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for index, rule in enumerate(role.get("rules") or ()):
        _check_rule(rule, f"rules[{index}]", errs, namespaced=True)
    return errs


def validate_cluster_role(role: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for index, rule in enumerate(role.get("rules") or ()):
        _check_rule(rule, f"rules[{index}]", errs, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return errs
    chosen = aggregation.get("clusterRoleSelectors") or []
    at = "aggregationRule.clusterRoleSelectors"
    if not chosen:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errs.append(field_errors.required(at, detail))
    for index, selector in enumerate(chosen):
        wrong = selectors.validate_object(selector, f"{at}[{index}]")
        errs += wrong
        if wrong:
            errs.append(field_errors.invalid(f"{at}[{index}]", None, "invalid label selector."))
    return errs


def _check_rule(rule: Object, at: str, errs: list[FieldError], *, namespaced: bool) -> None:
    urls, groups, resources = (rule.get(name) or [] for name in ("nonResourceURLs", "apiGroups", "resources"))
    if not rule.get("verbs"):
        errs.append(field_errors.required(f"{at}.verbs", "verbs must contain at least one value"))
    if urls:
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            errs.append(field_errors.invalid(f"{at}.nonResourceURLs", urls, detail))
        if groups or resources or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errs.append(field_errors.invalid(f"{at}.nonResourceURLs", urls, detail))
        return
    if not groups:
        errs.append(field_errors.required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
    if not resources:
        errs.append(field_errors.required(f"{at}.resources", "resource rules must supply at least one resource"))


def validate_binding(binding: Object, *, namespaced: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    role = binding.get("roleRef") or {}
    group, kind, name = role.get("apiGroup") or "", role.get("kind") or "", role.get("name") or ""
    checks.optional_enum(group, (GROUP,), "roleRef.apiGroup", errs)
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    checks.optional_enum(kind, kinds, "roleRef.kind", errs)
    if not name:
        errs.append(field_errors.required("roleRef.name"))
    else:
        checks.report_problems(names.path_segment_problems(name), "roleRef.name", name, errs)
    for index, subject in enumerate(binding.get("subjects") or ()):
        _check_subject(subject, f"subjects[{index}]", errs, namespaced=namespaced)
    return errs


def _check_subject(subject: Object, at: str, errs: list[FieldError], *, namespaced: bool) -> None:
    kind, name, group = subject.get("kind") or "", subject.get("name") or "", subject.get("apiGroup") or ""
    if not name:
        errs.append(field_errors.required(f"{at}.name"))
    if kind == "ServiceAccount":
        if name:
            checks.report_problems(names.subdomain_problems(name), f"{at}.name", name, errs)
        if group:
            errs.append(field_errors.not_supported(f"{at}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errs.append(field_errors.required(f"{at}.namespace"))
    elif kind in ("User", "Group"):
        checks.optional_enum(group, (GROUP,), f"{at}.apiGroup", errs)
    else:
        errs.append(field_errors.not_supported(f"{at}.kind", kind, ("ServiceAccount", "User", "Group")))


def validate_binding_update(new: Object, old: Object, *, namespaced: bool) -> list[FieldError]:
    errs = validate_binding(new, namespaced=namespaced)
    if new.get("roleRef") != old.get("roleRef"):
        errs.append(field_errors.invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
    return errs
