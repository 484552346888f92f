"""Validation of podFailurePolicy and successPolicy."""

from __future__ import annotations

from torchyard.api import checks, field_errors, names
from torchyard.api.field_errors import FieldError
from torchyard.api.job.indexes import IndexesError, count_indexes
from torchyard.api.objects import Object

_MAX_RULES = 20
_MAX_PATTERNS = 20
_MAX_EXIT_CODES = 255
_MAX_INDEXES_LENGTH = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")


def _valid(values: tuple[str, ...]) -> str:
    return f"valid values: [{' '.join(field_errors.format_value(value) for value in values)}]"


def check_failure_policy(spec: Object, at: str, errs: list[FieldError]) -> None:
    rules = spec["podFailurePolicy"].get("rules") or []
    if len(rules) > _MAX_RULES:
        errs.append(field_errors.too_many(f"{at}.rules", len(rules), _MAX_RULES))
    pod = spec["template"].get("spec") or {}
    containers = {
        container.get("name") for kind in ("containers", "initContainers") for container in pod.get(kind) or ()
    }
    for index, rule in enumerate(rules):
        field, action = f"{at}.rules[{index}]", rule.get("action") or ""
        if not action:
            errs.append(field_errors.required(f"{field}.action", _valid(_ACTIONS)))
        elif action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                detail = "requires the backoffLimitPerIndex to be set"
                errs.append(field_errors.invalid(f"{field}.action", action, detail))
        else:
            checks.optional_enum(action, _ACTIONS, f"{field}.action", errs)
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            _check_exit_codes(codes, containers, f"{field}.onExitCodes", errs)
        if patterns:
            _check_patterns(patterns, f"{field}.onPodConditions", errs)
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            errs.append(field_errors.FieldError("FieldValueInvalid", field, f"Invalid value: {detail}"))
        elif codes is None and not patterns:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            errs.append(field_errors.FieldError("FieldValueInvalid", field, f"Invalid value: {detail}"))


def _check_exit_codes(codes: Object, containers: set[str | None], at: str, errs: list[FieldError]) -> None:
    operator, values, container = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    if not operator:
        errs.append(field_errors.required(f"{at}.operator", _valid(_OPERATORS)))
    else:
        checks.optional_enum(operator, _OPERATORS, f"{at}.operator", errs)
    if container is not None and container not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errs.append(field_errors.invalid(f"{at}.containerName", container, detail))
    if not values:
        errs.append(field_errors.invalid(f"{at}.values", codes.get("values"), "at least one value is required"))
    elif len(values) > _MAX_EXIT_CODES:
        errs.append(field_errors.too_many(f"{at}.values", len(values), _MAX_EXIT_CODES))
    for index, (value, is_repeated) in enumerate(zip(values, checks.repetitions(values), strict=True)):
        if operator == "In" and value == 0:
            errs.append(field_errors.invalid(f"{at}.values[{index}]", value, "must not be 0 for the In operator"))
        if is_repeated:
            errs.append(field_errors.duplicate(f"{at}.values[{index}]", value))
    if values != sorted(values):
        errs.append(field_errors.invalid(f"{at}.values", values, "must be ordered"))


def _check_patterns(patterns: list[Object], at: str, errs: list[FieldError]) -> None:
    if len(patterns) > _MAX_PATTERNS:
        errs.append(field_errors.too_many(at, len(patterns), _MAX_PATTERNS))
    for index, pattern in enumerate(patterns):
        kind, status = pattern.get("type") or "", pattern.get("status") or ""
        checks.report_problems(names.qualified_name_problems(kind), f"{at}[{index}].type", kind, errs)
        if not status:
            errs.append(field_errors.required(f"{at}[{index}].status", _valid(_STATUSES)))
        else:
            checks.optional_enum(status, _STATUSES, f"{at}[{index}].status", errs)


def check_success_policy(spec: Object, at: str, errs: list[FieldError]) -> None:
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions") or 0
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errs.append(field_errors.required(f"{at}.rules", detail))
    if len(rules) > _MAX_RULES:
        errs.append(field_errors.too_many(f"{at}.rules", len(rules), _MAX_RULES))
    for index, rule in enumerate(rules):
        _check_success_rule(rule, completions, f"{at}.rules[{index}]", errs)


def _check_success_rule(rule: Object, completions: int, at: str, errs: list[FieldError]) -> None:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        errs.append(field_errors.required(at, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if indexes is not None:
        if len(indexes) > _MAX_INDEXES_LENGTH:
            errs.append(field_errors.too_long(f"{at}.succeededIndexes", _MAX_INDEXES_LENGTH))
        try:
            total = count_indexes(indexes, completions)
        except IndexesError as error:
            detail = f"error parsing succeededIndexes: {error.message}"
            errs.append(field_errors.invalid(f"{at}.succeededIndexes", indexes, detail))
    if count is None:
        return
    field = f"{at}.succeededCount"
    checks.nonnegative(count, field, errs)
    if count > completions:
        detail = f"must be less than or equal to {completions} (the number of specified completions)"
        errs.append(field_errors.invalid(field, count, detail))
    if indexes is not None and count > total:
        detail = (
            f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        )
        errs.append(field_errors.invalid(field, count, detail))
