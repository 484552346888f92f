"""Validation of ResourceQuotas and LimitRanges, and defaults of LimitRanges."""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.api import checks, compute_resources, field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity

SCOPES = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
)
_POD_SCOPES = frozenset(SCOPES) - {"VolumeAttributesClass"}
_EXISTS_ONLY = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_CLAIM_RESOURCES = frozenset({"persistentvolumeclaims", "requests.storage"})
_POD_ONLY = "pods"
_COMPUTE = frozenset(
    {"cpu", "memory", "ephemeral-storage"}
    | {f"{which}.{name}" for which in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")}
)
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")


def validate_quota(quota: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = quota.get("spec") or {}
    _check_amounts(spec.get("hard") or {}, "spec.hard", errs)
    _check_scopes(spec, errs)
    if (selector := spec.get("scopeSelector")) is not None:
        _check_selector(selector, spec, errs)
    return errs


def _check_amounts(holder: Mapping[str, str], at: str, errs: list[FieldError]) -> None:
    for name, text in holder.items():
        field = f"{at}[{name}]"
        compute_resources.check_quota_name(name, field, errs)
        compute_resources.check_quantity(name, quantity.parse(text), field, errs)


def _applies(scope: str, resource: str) -> bool:
    """Whether a scope applies to a resource (upstream's IsResourceQuotaScopeValidForResource)."""
    if scope in ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"):
        return resource in _COMPUTE or resource == _POD_ONLY
    if scope == "BestEffort":
        return resource == _POD_ONLY
    if scope == "VolumeAttributesClass":
        return resource in _CLAIM_RESOURCES
    return True


def _check_scopes(spec: Object, errs: list[FieldError]) -> None:
    scopes, at = spec.get("scopes") or [], "spec.scopes"
    shown = scopes[: field_errors.MAX_ITEMS_SHOWN]
    inapplicable = _InapplicableNames(spec)
    for scope in scopes:
        if len(errs) >= field_errors.MAX_ERRORS:
            return
        if scope not in SCOPES:
            errs.append(field_errors.invalid(at, shown, "unsupported scope"))
        error = field_errors.invalid(at, shown, "unsupported scope applied to resource")
        errs += [error] * min(inapplicable.count(scope), field_errors.MAX_ERRORS)
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            errs.append(field_errors.invalid(at, shown, "conflicting scopes"))


class _InapplicableNames:
    """How many of a quota's resources a scope does not apply to; there may be thousands of either."""

    def __init__(self, spec: Object) -> None:
        self._names = [name for name in spec.get("hard") or () if compute_resources.is_quota_name(name)]
        self._counts: dict[str, int] = {}

    def count(self, scope: str) -> int:
        if scope not in SCOPES:
            return 0  # it applies to every resource
        if scope not in self._counts:
            self._counts[scope] = sum(not _applies(scope, name) for name in self._names)
        return self._counts[scope]


def _check_selector(selector: Object, spec: Object, errs: list[FieldError]) -> None:
    at = "spec.scopeSelector.matchExpressions"
    seen: set[str] = set()
    inapplicable = _InapplicableNames(spec)
    for expression in selector.get("matchExpressions") or ():
        if len(errs) >= field_errors.MAX_ERRORS:
            return
        scope, operator = expression.get("scopeName") or "", expression.get("operator") or ""
        values = expression.get("values") or []
        if scope not in SCOPES:
            errs.append(field_errors.invalid(f"{at}.scopeName", scope, "unsupported scope"))
        if count := min(inapplicable.count(scope), field_errors.MAX_ERRORS):
            shown = {**selector, "matchExpressions": selector["matchExpressions"][: field_errors.MAX_ITEMS_SHOWN]}
            errs += [field_errors.invalid(at, shown, "unsupported scope applied to resource")] * count
        if scope in _EXISTS_ONLY and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort "
                "or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errs.append(field_errors.invalid(f"{at}.operator", operator, detail))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errs.append(field_errors.required(f"{at}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errs.append(field_errors.invalid(f"{at}.values", values, detail))
        else:
            errs.append(field_errors.invalid(f"{at}.operator", operator, "not a valid selector operator"))
        seen.add(scope)
    for pair in _CONFLICTS:
        if pair <= seen:
            errs.append(field_errors.invalid(at, spec.get("scopes"), "conflicting scopes"))


def validate_quota_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate_quota(new)
    scopes, before = ((obj.get("spec") or {}).get("scopes") or [] for obj in (new, old))
    if set(scopes) != set(before):
        errs.append(field_errors.invalid("spec.scopes", scopes or None, names.IMMUTABLE))
    return errs


def validate_quota_status(new: Object, _old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for kind in ("hard", "used"):
        _check_amounts((new.get("status") or {}).get(kind) or {}, f"status.{kind}", errs)
    return errs


def default_limit_range(limit_range: Object) -> None:
    """Default the default limit to the maximum, and the default request to the default limit or the minimum."""
    for limit in limit_range.setdefault("spec", {}).setdefault("limits", None) or ():
        for kind in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            compute_resources.canonical_list(limit.get(kind))
        if limit.get("type") != "Container":
            continue
        defaults = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        requests = {**(limit.get("min") or {}), **defaults, **(limit.get("defaultRequest") or {})}
        if defaults:
            limit["default"] = defaults
        if requests:
            limit["defaultRequest"] = requests


def validate_limit_range(limit_range: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for index, limit in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        at, kind = f"spec.limits[{index}]", limit.get("type") or ""
        _check_type(kind, f"{at}.type", errs)
        if kind in seen:
            errs.append(field_errors.duplicate(f"{at}.type", kind))
        seen.add(kind)
        _check_limit(limit, kind, at, errs)
    return errs


def _check_type(kind: str, field: str, errs: list[FieldError]) -> None:
    if problems := names.qualified_name_problems(kind):
        checks.report_problems(problems, field, kind, errs)
    elif "/" not in kind and kind not in _LIMIT_TYPES:
        errs.append(field_errors.invalid(field, kind, "must be a standard limit type or fully qualified"))


def _check_limit(limit: Object, kind: str, at: str, errs: list[FieldError]) -> None:
    check = compute_resources.check_container_name if kind in ("Pod", "Container") else compute_resources.check_name
    constraints: dict[str, dict[str, Quantity]] = {}

    def read(which: str) -> None:
        constraints[which] = {name: quantity.parse(text) for name, text in (limit.get(which) or {}).items()}
        for name in constraints[which]:
            check(name, f"{at}.{which}[{name}]", errs)

    read("max")
    read("min")
    if kind == "Pod":
        for which in ("default", "defaultRequest"):
            if limit.get(which):
                errs.append(field_errors.forbidden(f"{at}.{which}", "may not be specified when `type` is 'Pod'"))
    else:
        read("default")
        read("defaultRequest")
    if kind == "PersistentVolumeClaim" and "storage" not in constraints["min"] and "storage" not in constraints["max"]:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errs.append(field_errors.required(f"{at}.limits", detail))
    read("maxLimitRequestRatio")
    for name in sorted({name for quantities in constraints.values() for name in quantities}):
        _check_order(
            {which: quantities[name] for which, quantities in constraints.items() if name in quantities}, name, at, errs
        )


_ORDER = (
    # low, high, the field with the error, the reported value, the message
    ("min", "max", "min", "min", "min value {low} is greater than max value {high}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        "min value {low} is greater than default request value {high}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        "default request value {low} is greater than max value {high}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value {low} is greater than default limit value {high}",
    ),
    ("min", "default", "default", "min", "min value {low} is greater than default value {high}"),
    ("default", "max", "default", "max", "default value {low} is greater than max value {high}"),
)


def _check_order(values: dict[str, Quantity], name: str, at: str, errs: list[FieldError]) -> None:
    for low, high, field, label, sentence in _ORDER:
        if low in values and high in values and values[low] > values[high]:
            detail = sentence.format(low=values[low], high=values[high])
            errs.append(field_errors.invalid(f"{at}.{field}[{name}]", str(values[label]), detail))
    ratio = values.get("maxLimitRequestRatio")
    field = f"{at}.maxLimitRequestRatio[{name}]"
    if ratio is not None and ratio < Quantity.of(1):
        errs.append(field_errors.invalid(field, str(ratio), f"ratio {ratio} is less than 1"))
    if ratio is not None and values.get("min") and "max" in values:
        highest = values["max"].milli / values["min"].milli
        if ratio.milli / 1000 > highest:
            detail = f"ratio {ratio} is greater than max/min = {highest:f}"
            errs.append(field_errors.invalid(field, str(ratio), detail))
    limit, request = values.get("default"), values.get("defaultRequest")
    if (
        limit is not None
        and request is not None
        and limit != request
        and not compute_resources.overcommit_allowed(name)
    ):
        detail = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errs.append(field_errors.invalid(f"{at}.defaultRequest[{name}]", str(request), detail))
