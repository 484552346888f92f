"""Validation of node selectors, which pods and PersistentVolumes have."""

from __future__ import annotations

import re

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

_NOT_OPERATOR = "not a valid selector operator"
_is_integer = re.compile("[+-]?[0-9]{1,40}").fullmatch


def parse_int64(text: str) -> int | None:
    """The value that Gt and Lt compare; None if it is not a 64-bit integer as Go's ParseInt reads it."""
    if not _is_integer(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def check_node_selector(selector: Object, at: str, errs: list[FieldError]) -> None:
    """Check a node selector of a pod's affinity or of a PersistentVolume."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        errs.append(field_errors.required(f"{at}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms):
        check_node_selector_term(term, f"{at}.nodeSelectorTerms[{index}]", errs)


def check_node_selector_term(term: Object, at: str, errs: list[FieldError], *, any_value: bool = False) -> None:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        _check_node_requirement(requirement, f"{at}.matchExpressions[{index}]", errs, any_value=any_value)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        _check_node_field(requirement, f"{at}.matchFields[{index}]", errs)


def _check_node_requirement(requirement: Object, at: str, errs: list[FieldError], *, any_value: bool) -> None:
    operator, key, values = (
        requirement.get("operator") or "",
        requirement.get("key") or "",
        requirement.get("values") or (),
    )
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(field_errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(field_errors.forbidden(f"{at}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errs.append(field_errors.required(f"{at}.values", detail))
    else:
        errs.append(field_errors.invalid(f"{at}.operator", operator, _NOT_OPERATOR))
    checks.report_problems(names.qualified_name_problems(key), f"{at}.key", key, errs)
    if not any_value:
        for index, value in enumerate(values):
            checks.report_problems(names.label_value_problems(value), f"{at}.values[{index}]", value, errs)


def _check_node_field(requirement: Object, at: str, errs: list[FieldError]) -> None:
    operator, key, values = (
        requirement.get("operator") or "",
        requirement.get("key") or "",
        requirement.get("values") or (),
    )
    if operator not in ("In", "NotIn"):
        errs.append(field_errors.invalid(f"{at}.operator", operator, _NOT_OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errs.append(field_errors.required(f"{at}.values", detail))
    if key != "metadata.name":
        errs.append(field_errors.invalid(f"{at}.key", key, "not a valid field selector key"))
        return
    for index, value in enumerate(values):
        checks.report_problems(names.subdomain_problems(value), f"{at}.values[{index}]", value, errs)
