"""Evaluates a policy's expressions for one write, with one parameter object."""

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
from torchyard.apiserver.access.webhooks.policy_decision import PolicyDecision
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.cel.types import BOOL, DYN, STRING, CelType, ObjectField, ObjectType


def evaluate_policy(
    spec: Object,
    versioned: VersionedAttributes,
    attributes: VersionedAttributes,
    *,
    params: Object | None,
    namespace: Object | None,
) -> list[PolicyDecision]:
    """The validations of a policy that do not hold."""
    try:
        if not match_conditions_hold(spec.get("matchConditions") or [], versioned, attributes):
            return []
    except ExpressionFailed as failure:
        return [PolicyDecision(str(failure), "Invalid", failed=True)]
    types = _variable_types(spec)
    variables = {**expression_variables(versioned, attributes), "params": params, "namespaceObject": namespace}
    variables["variables"] = _evaluate_variables(spec, variables, types)
    decisions: list[PolicyDecision] = []
    for validation in spec.get("validations") or ():
        expression = validation.get("expression") or ""
        try:
            if evaluate(expression, variables, types, BOOL) is not True:
                decisions.append(
                    PolicyDecision(_message(validation, variables, types), validation.get("reason") or "Invalid")
                )
        except ExpressionFailed as failure:
            decisions.append(PolicyDecision(str(failure), validation.get("reason") or "Invalid", failed=True))
    return decisions


def _message(validation: Object, variables: Object, types: VariableTypes) -> str:
    expression = (validation.get("expression") or "").strip()
    fallback = (validation.get("message") or "").strip() or f"failed expression: {expression}"
    if not validation.get("messageExpression"):
        return fallback
    try:
        message = evaluate(validation["messageExpression"], variables, types, STRING)
    except ExpressionFailed:
        return fallback
    message = message.strip() if isinstance(message, str) else ""
    return message if message and "\n" not in message else fallback


def _variable_types(spec: Object) -> VariableTypes:
    """The variables of a policy's expressions with their types; `variables.x` has the type of its expression."""
    definitions = tuple(
        (variable.get("name") or "", variable.get("expression") or "") for variable in spec.get("variables") or ()
    )
    return _policy_variable_types(definitions, has_params=spec.get("paramKind") is not None)


@lru_cache(maxsize=256)
def _policy_variable_types(definitions: tuple[tuple[str, str], ...], *, has_params: bool) -> VariableTypes:
    types: VariableTypes = (*CONDITION_VARIABLES, ("namespaceObject", DYN), *((("params", DYN),) if has_params else ()))
    fields: dict[str, ObjectField] = {}
    for name, expression in definitions:
        known_types = (*types, ("variables", ObjectType("variables", fields=dict(fields))))
        try:
            fields[name] = ObjectField(compiled_program(expression, known_types, None).type, name)
        except ValueError:
            fields[name] = ObjectField(DYN, name)  # reported at the variable's own definition
    return (*types, ("variables", ObjectType("variables", fields=fields)))


def _evaluate_variables(spec: Object, variables: Object, types: VariableTypes) -> Object:
    """The values of a policy's variables; a variable that fails is left out, so that its users fail."""
    values: Object = {}
    for variable in spec.get("variables") or ():
        try:
            values[variable["name"]] = evaluate(variable["expression"], {**variables, "variables": values}, types, None)
        except ExpressionFailed:
            continue
    return values


def policy_errors(policy: Object) -> list[FieldError]:
    """The compile errors of a policy's expressions; required fields are validated elsewhere."""
    spec = policy.get("spec") or {}
    types = _variable_types(spec)
    errs: list[FieldError] = []
    for index, entry in enumerate(spec.get("variables") or ()):
        errs += _compile_errors(entry.get("expression"), f"spec.variables[{index}].expression", types, None)
    for index, entry in enumerate(spec.get("matchConditions") or ()):
        errs += _compile_errors(entry.get("expression"), f"spec.matchConditions[{index}].expression", types, BOOL)
    for index, entry in enumerate(spec.get("validations") or ()):
        at = f"spec.validations[{index}]"
        errs += _compile_errors(entry.get("expression"), f"{at}.expression", types, BOOL)
        errs += _compile_errors(entry.get("messageExpression"), f"{at}.messageExpression", types, STRING)
    for index, entry in enumerate(spec.get("auditAnnotations") or ()):
        errs += _compile_errors(
            entry.get("valueExpression"), f"spec.auditAnnotations[{index}].valueExpression", types, None
        )
    return errs


def condition_errors(expression: str, field: str) -> list[FieldError]:
    """The compile errors of a webhook's match condition."""
    return _compile_errors(expression, field, CONDITION_VARIABLES, BOOL)


def _compile_errors(
    expression: str | None, field: str, types: VariableTypes, result_type: CelType | None
) -> list[FieldError]:
    if not expression or not expression.strip():
        return []
    try:
        compiled_program(expression, types, result_type)
    except ValueError as error:
        return [field_errors.invalid(field, expression, str(error))]
    return []
