"""Names and quantities of compute resources: what a container may request and what a quota may limit.

This follows upstream's distinction between native resources (cpu, memory, hugepages-*, *.kubernetes.io/*), which may
be overcommitted except for huge pages, and extended resources (nvidia.com/gpu), which are integers and may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from torchyard.api import field_errors, names, quantity
from torchyard.api.field_errors import FieldError
from torchyard.api.quantity import Quantity

_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_QUOTA = _COUNTED | _CONTAINER | {f"{which}.{name}" for which in ("requests", "limits") for name in _CONTAINER}
_QUOTA |= {"requests.storage"}
_STANDARD = _QUOTA | {"storage"}
HUGE_PAGES = "hugepages-"
_POD_LEVEL = ("cpu", "hugepages-", "memory")

NameCheck = Callable[[str, str, list[FieldError]], None]


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=1024)
def is_extended(name: str) -> bool:
    """Whether `name` is an extended resource, such as nvidia.com/gpu."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name_problems(f"requests.{name}")


def overcommit_allowed(name: str) -> bool:
    return is_native(name) and not name.startswith(HUGE_PAGES)


def is_integer_resource(name: str) -> bool:
    """Whether quantities of `name` must be integers."""
    return name in _COUNTED or is_extended(name)


def is_quota_name(name: str) -> bool:
    return name in _QUOTA or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def check_name(name: str, field: str, errs: list[FieldError]) -> bool:
    """Check a resource name: a standard one, or one with a domain. Return whether it is well-formed."""
    if problems := names.qualified_name_problems(name):
        errs.extend(field_errors.invalid(field, name, problem) for problem in problems)
        return False
    if "/" not in name and name not in _STANDARD and not name.startswith(HUGE_PAGES):
        errs.append(field_errors.invalid(field, name, "must be a standard resource type or fully qualified"))
        return False
    return True


def check_container_name(name: str, field: str, errs: list[FieldError]) -> None:
    """Check the name of a resource that a container may request."""
    if name in _CONTAINER:
        return
    check_name(name, field, errs)
    if "/" not in name:
        if not name.startswith(HUGE_PAGES):
            errs.append(field_errors.invalid(field, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errs.append(field_errors.invalid(field, name, "doesn't follow extended resource name standard"))


def is_pod_level(name: str) -> bool:
    """Whether `name` may be requested for the pod as a whole."""
    return name in ("cpu", "memory") or name.startswith(HUGE_PAGES)


def check_pod_level_name(name: str, field: str, errs: list[FieldError]) -> None:
    """Check the name of a resource that may be requested for the pod as a whole."""
    if check_name(name, field, errs) and not is_pod_level(name):
        errs.append(field_errors.not_supported(field, name, _POD_LEVEL))


def check_quota_name(name: str, field: str, errs: list[FieldError]) -> None:
    """Check the name of a resource that a quota may limit."""
    check_name(name, field, errs)
    if "/" not in name and not is_quota_name(name):
        errs.append(field_errors.invalid(field, name, "must be a standard resource for quota"))


def check_quantity(name: str, amount: Quantity, field: str, errs: list[FieldError]) -> None:
    """Require a quantity that is not negative, and an integer where the resource requires one."""
    if amount.nano < 0:
        errs.append(field_errors.invalid(field, str(amount), names.NOT_NEGATIVE))
    if amount.milli % 1000 and is_integer_resource(name):
        errs.append(field_errors.invalid(field, str(amount), "must be an integer"))


def _check_huge_pages(name: str, amount: Quantity, field: str, errs: list[FieldError]) -> None:
    try:
        size = quantity.parse(name.removeprefix(HUGE_PAGES))
    except quantity.QuantityError:
        size = quantity.ZERO
    if size.nano <= 0 or not size.whole or amount.value % size.value:
        detail = f"{amount} is not positive integer multiple of {name}"
        errs.append(field_errors.invalid(field, str(amount), detail))


def _is_valid_common_case(name: str, amount: Quantity) -> bool:
    """A cheap test for the common case: cpu and memory, and integer numbers of devices."""
    if amount.nano < 0:
        return False
    return name in _CONTAINER or (amount.nano % quantity.NANO == 0 and _is_device(name))


@lru_cache(maxsize=1024)
def _is_device(name: str) -> bool:
    return is_extended(name) and not names.qualified_name_problems(name)


def check_requirements(
    requirements: Mapping[str, Any],
    at: str,
    errs: list[FieldError],
    *,
    claims: frozenset[str] = frozenset(),
    name_check: NameCheck = check_container_name,
) -> None:
    """Check `resources` of a container or a pod: names, quantities, and requests within limits."""
    limits: Mapping[str, Any] = requirements.get("limits") or {}
    requests: Mapping[str, Any] = requirements.get("requests") or {}
    parse = quantity.parse
    pages = False
    # all names that containers may use are known; for pod-level resources each name is checked
    quick = name_check is check_container_name
    for name, text in limits.items():
        amount = parse(text)
        if not (quick and _is_valid_common_case(name, amount)):
            field = f"{at}.limits[{name}]"
            name_check(name, field, errs)
            check_quantity(name, amount, field, errs)
            if name.startswith(HUGE_PAGES):
                pages = True
                _check_huge_pages(name, amount, field, errs)
    for name, text in requests.items():
        limit = limits.get(name)
        amount = parse(text)
        if not (quick and _is_valid_common_case(name, amount)):
            field = f"{at}.requests[{name}]"
            name_check(name, field, errs)
            check_quantity(name, amount, field, errs)
        if limit is None:
            if not overcommit_allowed(name):
                errs.append(field_errors.required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
        elif text is not limit:
            _check_against_limit(name, amount, parse(limit), f"{at}.requests", errs)
        if name.startswith(HUGE_PAGES):
            pages = True
            _check_huge_pages(name, amount, f"{at}.requests[{name}]", errs)
    if pages and not (limits.keys() | requests.keys()) & {"cpu", "memory"}:
        errs.append(field_errors.forbidden(at, "HugePages require cpu or memory"))
    if named := requirements.get("claims"):
        _check_claims(named, claims, f"{at}.claims", errs)


def _check_against_limit(name: str, amount: Quantity, limit: Quantity, field: str, errs: list[FieldError]) -> None:
    if amount.nano == limit.nano:
        return
    if not overcommit_allowed(name):
        errs.append(field_errors.invalid(field, str(amount), f"must be equal to {name} limit of {limit}"))
    elif amount.nano > limit.nano:
        errs.append(field_errors.invalid(field, str(amount), f"must be less than or equal to {name} limit of {limit}"))


def _check_claims(named: list[dict[str, Any]], known: frozenset[str], at: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    seen_names: set[str] = set()  # of claims with a request
    unknown = "must be one of the names in pod.spec.resourceClaims"
    unknown += f": {', '.join(sorted(known)[: field_errors.MAX_ITEMS_SHOWN])}" if known else " which is empty"
    for index, claim in enumerate(named):
        field, name, request = f"{at}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errs.append(field_errors.required(field))
            continue
        if request and name not in seen:
            problems = names.label_problems(request)
            errs.extend(field_errors.invalid(f"{field}.request", request, problem) for problem in problems)
        key = f"{name}/{request}" if request else name
        overlaps = not request and name in seen_names
        if name in seen or key in seen or overlaps:
            errs.append(field_errors.duplicate(field, name if name in seen or overlaps else key))
        seen.add(key)
        if request:
            seen_names.add(name)
        if name not in known:
            errs.append(field_errors.FieldError("FieldValueNotFound", field, f'Not found: "{name}": {unknown}'))


def check_overhead(overhead: Mapping[str, Any], at: str, errs: list[FieldError]) -> None:
    """Check the overhead of a RuntimeClass as if it were a container's limits."""
    check_requirements({"limits": overhead}, at, errs)


def canonical_list(amounts: dict[str, Any] | None) -> None:
    """Write the quantities of a resource list in canonical form, rounded up to milli-units."""
    if amounts:
        for name, text in amounts.items():
            amounts[name] = _round_to_milli(text if text is not None else 0)


# The same few quantities recur. typed=True, because 1 and 1.0 are equal.
@lru_cache(maxsize=4096, typed=True)
def _round_to_milli(text: str | int | float) -> str:
    return str(quantity.parse(text).round_to_milli())
