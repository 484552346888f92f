"""Compiled label selectors, created from a text, a LabelSelector object or a plain map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchyard.api import field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.selectors import grammar
from torchyard.api.selectors.grammar import DOES_NOT_EXIST, EQUALS, EXISTS, GREATER, IN, NOT_IN, Requirement, is_integer

Labels = Mapping[str, str]

_NO_LABELS: Labels = {}


class LabelSelector:
    """Requirements that must all hold. `matches` takes an object's labels, or None."""

    __slots__ = ("equalities", "matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda requirement: requirement.key))
        self.equalities = _equalities(self.requirements)
        self.matches: Callable[[Labels | None], bool] = _predicate(self.requirements)

    @property
    def everything(self) -> bool:
        return not self.requirements

    def __str__(self) -> str:
        return ",".join(_format_requirement(requirement) for requirement in self.requirements)


class _Nothing(LabelSelector):
    """The selector for an absent LabelSelector: it selects nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.matches = lambda _: False

    @property
    def everything(self) -> bool:
        return False


def _equalities(requirements: Iterable[Requirement]) -> dict[str, str]:
    return {
        requirement.key: requirement.values[0]
        for requirement in requirements
        if requirement.operator == EQUALS or (requirement.operator == IN and len(requirement.values) == 1)
    }


def _predicate(requirements: tuple[Requirement, ...]) -> Callable[[Labels | None], bool]:
    """Return a fast predicate for the common forms, or a loop over all requirements."""
    if not requirements:
        return lambda _: True
    if all(requirement.operator == EQUALS for requirement in requirements):
        if len(requirements) == 1:
            key, _, (value,) = requirements[0]
            return lambda labels: labels is not None and labels.get(key) == value
        pairs = {(requirement.key, requirement.values[0]) for requirement in requirements}
        return lambda labels: labels is not None and pairs <= labels.items()
    tests = [_test(requirement) for requirement in requirements]

    def every(labels: Labels | None) -> bool:
        present = labels if labels is not None else _NO_LABELS
        return all(test(present) for test in tests)

    return every


def _test(requirement: Requirement) -> Callable[[Labels], bool]:
    key, operator, values = requirement
    allowed = frozenset(values)
    # missing keys satisfy != and notin: None is in no set of values
    match operator:
        case "=" | "in":
            return lambda labels: labels.get(key) in allowed
        case "!=" | "notin":
            return lambda labels: labels.get(key) not in allowed
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
    limit = int(values[0])
    sign = 1 if operator == GREATER else -1

    def beyond(labels: Labels) -> bool:
        value = labels.get(key)
        return value is not None and is_integer(value) is not None and sign * int(value) > sign * limit

    return beyond


def _format_requirement(requirement: Requirement) -> str:
    key, operator, values = requirement
    match operator:
        case "in" | "notin":
            return f"{key} {operator} ({','.join(sorted(values))})"
        case "exists":
            return key
        case "!":
            return f"!{key}"
        case "gt" | "lt":
            return f"{key}{'>' if operator == GREATER else '<'}{values[0]}"
    return f"{key}{operator}{values[0]}"


EVERYTHING = LabelSelector()
NOTHING: LabelSelector = _Nothing()


def parse_labels(text: str) -> LabelSelector:
    """Parse a `labelSelector` parameter. Raises 400 with upstream's message."""
    return LabelSelector(grammar.parse(text)) if text else EVERYTHING


_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Compile a valid LabelSelector object. None selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    if not labels and not expressions:
        return EVERYTHING
    requirements = [Requirement(key, EQUALS, (value,)) for key, value in labels.items()]
    requirements += [
        Requirement(expression["key"], _OBJECT_OPERATORS[expression["operator"]], tuple(expression.get("values") or ()))
        for expression in expressions
    ]
    return LabelSelector(requirements)


def from_map(labels: Labels | None) -> LabelSelector:
    """Compile a plain map, as in Services and ReplicationControllers. An empty map selects everything."""
    return LabelSelector(Requirement(key, EQUALS, (value,)) for key, value in (labels or {}).items())


def validate_object(selector: Mapping[str, Any] | None, field: str) -> list[FieldError]:
    """Validate a LabelSelector object."""
    errs: list[FieldError] = []
    if not selector:
        return errs
    errs += names.validate_labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        errs += _validate_expression(expression, f"{field}.matchExpressions[{index}]")
    return errs


def _validate_expression(expression: Mapping[str, Any], field: str) -> list[FieldError]:
    errs: list[FieldError] = []
    operator, values = expression.get("operator") or "", expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(
                field_errors.required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(field_errors.forbidden(f"{field}.values", detail))
    else:
        errs.append(field_errors.invalid(f"{field}.operator", operator, "not a valid selector operator"))
    key = expression.get("key") or ""
    errs.extend(field_errors.invalid(f"{field}.key", key, problem) for problem in names.qualified_name_problems(key))
    for index, value in enumerate(values):
        problems = names.label_value_problems(value)
        errs.extend(field_errors.invalid(f"{field}.values[{index}]", value, problem) for problem in problems)
    return errs
