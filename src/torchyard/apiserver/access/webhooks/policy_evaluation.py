"""A policy's expressions on one write, with one set of parameters."""

from __future__ import annotations

from functools import lru_cache

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.apiserver.access.webhooks.expressions import (
    CONDITION_VARIABLES,
    ExpressionFailed,
    VariableTypes,
    compiled_program,
    evaluate,
    expression_variables,
    match_conditions_hold,
)
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.cel.types import BOOL, DYN, STRING, CelType, ObjectField, ObjectType

Finding = tuple[str, str, bool]  # message, reason, whether the expression itself failed


def evaluate_policy(
    spec: Object,
    meant: VersionedAttributes,
    asked: VersionedAttributes,
    *,
    params: Object | None,
    namespace: Object | None,
) -> list[Finding]:
    """What a policy objects to."""
    try:
        if not match_conditions_hold(spec.get("matchConditions") or [], meant, asked):
            return []
    except ExpressionFailed as failure:
        return [(str(failure), "Invalid", True)]
    names = _names(spec)
    variables = {**expression_variables(meant, asked), "params": params, "namespaceObject": namespace}
    variables["variables"] = _evaluated(spec, variables, names)
    found: list[Finding] = []
    for validation in spec.get("validations") or ():
        expression = validation.get("expression") or ""
        try:
            if evaluate(expression, variables, names, BOOL) is not True:
                found.append((_message(validation, variables, names), validation.get("reason") or "Invalid", False))
        except ExpressionFailed as failure:
            found.append((str(failure), validation.get("reason") or "Invalid", True))
    return found


def _message(validation: Object, variables: Object, names: VariableTypes) -> str:
    expression = (validation.get("expression") or "").strip()
    fallback = (validation.get("message") or "").strip() or f"failed expression: {expression}"
    if not validation.get("messageExpression"):
        return fallback
    try:
        said = evaluate(validation["messageExpression"], variables, names, STRING)
    except ExpressionFailed:
        return fallback
    said = said.strip() if isinstance(said, str) else ""
    return said if said and "\n" not in said else fallback


def _names(spec: Object) -> VariableTypes:
    """What a policy's expressions may refer to: its own variables have the types they come to."""
    definitions = tuple((one.get("name") or "", one.get("expression") or "") for one in spec.get("variables") or ())
    return _typed(definitions, has_params=spec.get("paramKind") is not None)


@lru_cache(maxsize=256)
def _typed(definitions: tuple[tuple[str, str], ...], *, has_params: bool) -> VariableTypes:
    names: VariableTypes = (*CONDITION_VARIABLES, ("namespaceObject", DYN), *((("params", DYN),) if has_params else ()))
    fields: dict[str, ObjectField] = {}
    for name, expression in definitions:
        known = (*names, ("variables", ObjectType("variables", fields=dict(fields))))
        try:
            fields[name] = ObjectField(compiled_program(expression, known, None).type, name)
        except ValueError:
            fields[name] = ObjectField(DYN, name)  # told where the variable is defined
    return (*names, ("variables", ObjectType("variables", fields=fields)))


def _evaluated(spec: Object, known: Object, names: VariableTypes) -> Object:
    """The values of a policy's variables; one that fails is missing for those who use it."""
    found: Object = {}
    for one in spec.get("variables") or ():
        try:
            found[one["name"]] = evaluate(one["expression"], {**known, "variables": found}, names, None)
        except ExpressionFailed:
            continue
    return found


def policy_errors(policy: Object) -> list[FieldError]:
    """The faults of a policy's expressions, found when it is written; those left empty are told elsewhere."""
    spec = policy.get("spec") or {}
    names = _names(spec)
    errs: list[FieldError] = []
    for index, one in enumerate(spec.get("variables") or ()):
        errs += _compile_errors(one.get("expression"), f"spec.variables[{index}].expression", names, None)
    for index, one in enumerate(spec.get("matchConditions") or ()):
        errs += _compile_errors(one.get("expression"), f"spec.matchConditions[{index}].expression", names, BOOL)
    for index, one in enumerate(spec.get("validations") or ()):
        at = f"spec.validations[{index}]"
        errs += _compile_errors(one.get("expression"), f"{at}.expression", names, BOOL)
        errs += _compile_errors(one.get("messageExpression"), f"{at}.messageExpression", names, STRING)
    for index, one in enumerate(spec.get("auditAnnotations") or ()):
        errs += _compile_errors(
            one.get("valueExpression"), f"spec.auditAnnotations[{index}].valueExpression", names, None
        )
    return errs


def condition_errors(expression: str, field: str) -> list[FieldError]:
    """The faults of a webhook's match condition."""
    return _compile_errors(expression, field, CONDITION_VARIABLES, BOOL)


def _compile_errors(
    expression: str | None, field: str, names: VariableTypes, wanted: CelType | None
) -> list[FieldError]:
    if not expression or not expression.strip():
        return []
    try:
        compiled_program(expression, names, wanted)
    except ValueError as error:
        return [field_errors.invalid(field, expression, str(error))]
    return []
