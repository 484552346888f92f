"""Validation of affinity, tolerations, topology spread constraints and scheduling gates."""

from __future__ import annotations

from collections import Counter

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.node_selectors import check_node_selector, check_node_selector_term
from torchyard.api.objects import Object

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = "must be in the range 1-100"


def check_affinity(affinity: Object, at: str, errs: list[FieldError]) -> None:
    nodes = affinity.get("nodeAffinity")
    if nodes is not None:
        _check_node_affinity(nodes, f"{at}.nodeAffinity", errs)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind)
        if pods is None:
            continue
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            _check_pod_term(term, f"{at}.{kind}.{_REQUIRED}[{index}]", errs)
        for index, weighted in enumerate(pods.get(_PREFERRED) or ()):
            field = f"{at}.{kind}.{_PREFERRED}[{index}]"
            _check_weight(weighted, field, errs)
            _check_pod_term(weighted.get("podAffinityTerm") or {}, f"{field}.podAffinityTerm", errs)


def _check_weight(weighted: Object, field: str, errs: list[FieldError]) -> None:
    weight = weighted.get("weight") or 0
    if not 0 < weight <= 100:
        errs.append(field_errors.invalid(f"{field}.weight", weight, _WEIGHT))


def _check_node_affinity(affinity: Object, at: str, errs: list[FieldError]) -> None:
    required = affinity.get(_REQUIRED)
    if required is not None:
        check_node_selector(required, f"{at}.{_REQUIRED}", errs)
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        field = f"{at}.{_PREFERRED}[{index}]"
        _check_weight(weighted, field, errs)
        check_node_selector_term(weighted.get("preference") or {}, f"{field}.preference", errs, any_value=True)


def _check_pod_term(term: Object, at: str, errs: list[FieldError]) -> None:
    errs += selectors.validate_object(term.get("labelSelector"), f"{at}.labelSelector")
    errs += selectors.validate_object(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        checks.report_problems(names.label_problems(namespace), f"{at}.namespace", namespace, errs)
    _check_match_keys(term, at, errs)
    key = term.get("topologyKey") or ""
    if not key:
        errs.append(field_errors.required(f"{at}.topologyKey", "can not be empty"))
    checks.report_problems(names.qualified_name_problems(key), f"{at}.topologyKey", key, errs)


def _check_match_keys(term: Object, at: str, errs: list[FieldError]) -> None:
    """Check `matchLabelKeys`. The server adds these keys to the selector on create, so a key that is in both is an
    error.
    """
    selector = term.get("labelSelector")
    matched, mismatched = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    for name, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and selector is None:
            errs.append(field_errors.forbidden(f"{at}.{name}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                checks.report_problems(names.qualified_name_problems(key), f"{at}.{name}[{index}]", key, errs)
    if selector is not None and matched:
        seen = set(selector.get("matchLabels") or ())
        positions = {key: index for index, key in reversed(list(enumerate(matched)))}
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key")
            if key in seen and key in positions:
                detail = "exists in both matchLabelKeys and labelSelector"
                errs.append(field_errors.invalid(f"{at}[{positions[key]}]", key, detail))
            seen.add(key)
    excluded = set(mismatched)
    for index, key in enumerate(matched):
        if key in excluded:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errs.append(field_errors.invalid(f"{at}.matchLabelKeys[{index}]", key, detail))


def merge_match_keys(spec: Object, labels: dict[str, str]) -> None:
    """Add `matchLabelKeys` and `mismatchLabelKeys` of a new pod to their selectors, with the pod's label values."""
    affinity = spec.get("affinity") or {}
    terms: list[Object] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        terms += pods.get(_REQUIRED) or ()
        terms += [weighted.get("podAffinityTerm") or {} for weighted in pods.get(_PREFERRED) or ()]
    terms += spec.get("topologySpreadConstraints") or ()
    for term in terms:
        selector = term.get("labelSelector")
        if selector is None:
            continue
        expressions: list[Object] = []
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(field) or ():
                if key in labels:
                    expressions.append({"key": key, "operator": operator, "values": [labels[key]]})
        if expressions:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *expressions]


def check_spread(constraints: list[Object], at: str, errs: list[FieldError]) -> None:
    remaining = Counter(map(_spread_key, constraints))
    for index, constraint in enumerate(constraints):
        field = f"{at}[{index}]"
        skew, key = constraint.get("maxSkew") or 0, constraint.get("topologyKey") or ""
        action = constraint.get("whenUnsatisfiable") or ""
        if skew <= 0:
            errs.append(field_errors.invalid(f"{field}.maxSkew", skew, checks.NOT_POSITIVE))
        if not key:
            errs.append(field_errors.required(f"{field}.topologyKey", "can not be empty"))
        checks.optional_enum(action, ("DoNotSchedule", "ScheduleAnyway"), f"{field}.whenUnsatisfiable", errs)
        remaining[key, action] -= 1
        if remaining[key, action]:
            named = "{topologyKey, whenUnsatisfiable}"
            errs.append(field_errors.duplicate(f"{field}.{named}", f"{{{key}, {action}}}"))
        _check_min_domains(constraint.get("minDomains"), action, f"{field}.minDomains", errs)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            checks.optional_enum(constraint.get(policy), ("Honor", "Ignore"), f"{field}.{policy}", errs)
        _check_match_keys(constraint, field, errs)
        errs += selectors.validate_object(constraint.get("labelSelector"), f"{field}.labelSelector")


def _spread_key(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""


def _check_min_domains(domains: int | None, action: str, field: str, errs: list[FieldError]) -> None:
    if domains is None:
        return
    if domains <= 0:
        errs.append(field_errors.invalid(field, domains, checks.NOT_POSITIVE))
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errs.append(field_errors.invalid(field, domains, detail))


def check_tolerations(tolerations: list[Object], at: str, errs: list[FieldError]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if operator == "Exists" and effect == "NoExecute" and not value and not names.qualified_name_problems(key):
            continue  # the toleration that the server adds to every pod
        field = f"{at}[{index}]"
        if key:
            checks.report_problems(names.qualified_name_problems(key), f"{field}.key", key, errs)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(field_errors.invalid(f"{field}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(field_errors.invalid(f"{field}.effect", effect, detail))
        if operator in ("", "Equal"):
            if problems := names.label_value_problems(value):
                errs.append(field_errors.invalid(f"{field}.operator", value, ";".join(problems)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errs.append(field_errors.invalid(f"{field}.operator", value, detail))
        else:
            errs.append(field_errors.not_supported(f"{field}.operator", operator, ("Equal", "Exists")))
        if effect:
            checks.optional_enum(effect, EFFECTS, f"{field}.effect", errs)


def check_gates(gates: list[Object], at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        checks.report_problems(names.qualified_name_problems(name), f"{at}[{index}]", name, errs)
        if name in seen:
            errs.append(field_errors.duplicate(f"{at}[{index}]", name))
        seen.add(name)
