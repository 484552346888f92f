"""Field and label selectors in access reviews: their validation, and which of them no authorizer can evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.api import checks, field_errors
from torchyard.api.errors import StatusError
from torchyard.api.field_errors import FieldError
from torchyard.api.names import label_value_problems, qualified_name_problems
from torchyard.api.selectors import parse_fields, parse_labels

_PATH = "spec.resourceAttributes"
_FIELDS, _LABELS = "fieldSelector", "labelSelector"
_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")


def selector_errors(attributes: Mapping[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    for name in (_FIELDS, _LABELS):
        selector = attributes.get(name)
        if selector is None:
            continue
        at, raw, requirements = f"{_PATH}.{name}", selector.get("rawSelector"), selector.get("requirements")
        if raw and requirements:
            reason = "may not specified at the same time as requirements"
            errs.append(field_errors.invalid(f"{at}.rawSelector", raw, reason))
        if not raw and not requirements:
            detail = f"when {at} is specified, requirements or rawSelector is required"
            errs.append(field_errors.required(f"{at}.requirements", detail))
        for index, requirement in enumerate(requirements or ()):
            _check_requirement(requirement, f"{at}.requirements[{index}]", errs, labels=name == _LABELS)
    return errs


def _check_requirement(requirement: Mapping[str, Any], at: str, errs: list[FieldError], *, labels: bool) -> None:
    key, operator, values = (requirement.get(name) for name in ("key", "operator", "values"))
    if not labels and not key:
        errs.append(field_errors.required(f"{at}.key", "must be specified"))
    if operator in _WITH_VALUES and not values:
        errs.append(field_errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in _WITHOUT_VALUES and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errs.append(field_errors.forbidden(f"{at}.values", detail))
    if labels:
        checks.report_problems(qualified_name_problems(key or ""), f"{at}.key", key or "", errs)
        for number, value in enumerate(values or ()):
            checks.report_problems(label_value_problems(value), f"{at}.values[{number}]", value, errs)


def ignored_selectors(attributes: Mapping[str, Any]) -> list[str]:
    """A sentence for each selector that cannot be evaluated, or only in parts."""
    sentences = []
    for name in (_FIELDS, _LABELS):
        selector = attributes.get(name) or {}
        requirements = selector.get("requirements") or ()
        usable = [requirement for requirement in requirements if _is_usable(requirement, labels=name == _LABELS)]
        if len(usable) < len(requirements) or not _is_parsed(name, selector.get("rawSelector") or ""):
            sentences.append(f"{_PATH}.{name} {'partially ' if usable else ''}ignored due to parse error")
    return sentences


def _is_usable(requirement: Mapping[str, Any], *, labels: bool) -> bool:
    operator = requirement.get("operator")
    if labels:
        return operator in (*_WITH_VALUES, *_WITHOUT_VALUES)
    return operator in _WITH_VALUES and len(requirement.get("values") or ()) == 1


def _is_parsed(name: str, text: str) -> bool:
    try:
        (parse_fields if name == _FIELDS else parse_labels)(text)
    except StatusError:
        return False
    return True
