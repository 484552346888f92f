"""CEL expressions of admission: match conditions and policy validations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torchyard.api.objects import Object
from torchyard.apiserver.access.webhooks.admission_review import admission_request
from torchyard.apiserver.access.webhooks.versioned_attributes import VersionedAttributes
from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from torchyard.apiserver.cel.library import kubernetes_library
from torchyard.apiserver.cel.program import Program, compile_expression
from torchyard.apiserver.cel.types import BOOL, DYN, CelType

# The cost limit of one expression: some tenths of a second at worst.
COST_LIMIT = 300_000

VariableTypes = tuple[tuple[str, CelType], ...]
CONDITION_VARIABLES: VariableTypes = (("object", DYN), ("oldObject", DYN), ("request", DYN))


class ExpressionFailed(Exception):
    """An expression that could not be evaluated."""


@lru_cache(maxsize=1024)
def compiled_program(expression: str, variables: VariableTypes, result_type: CelType | None) -> Program:
    """The compiled expression, cached. Raises ValueError with the real server's message."""
    try:
        compiled = compile_expression(expression, dict(variables), kubernetes_library())
    except CompileError as error:
        raise ValueError(f"compilation failed: {error.message}") from None
    if result_type is not None and compiled.type != result_type:
        raise ValueError(f"must evaluate to {result_type} but got {compiled.type}")
    return compiled


def expression_variables(attributes: VersionedAttributes, original: VersionedAttributes) -> Object:
    """The values of the variables that every expression can use."""
    review_request = admission_request(attributes, original)
    return {
        "object": attributes.obj,
        "oldObject": attributes.old,
        "request": {k: v for k, v in review_request.items() if k not in _HIDDEN},
    }


_HIDDEN = frozenset({"uid", "object", "oldObject"})


def evaluate(expression: str, variables: Object, types: VariableTypes, result_type: CelType | None) -> Any:
    """The value of an expression. Raises ExpressionFailed."""
    try:
        return compiled_program(expression, types, result_type).evaluate(variables, CostBudget(COST_LIMIT))
    except ValueError as error:
        raise ExpressionFailed(str(error)) from None
    except EvaluationError as error:
        raise ExpressionFailed(f"expression '{expression}' resulted in error: {error}") from None
    except CostLimitExceeded:
        raise ExpressionFailed(f"validation failed due to running out of cost budget: '{expression}'") from None


def match_conditions_hold(
    conditions: list[Object], attributes: VersionedAttributes, original: VersionedAttributes
) -> bool:
    """Whether all match conditions hold; a false one takes precedence over a failed one. Raises ExpressionFailed."""
    variables = expression_variables(attributes, original)
    failed: ExpressionFailed | None = None
    for condition in conditions:
        try:
            if evaluate(condition.get("expression") or "", variables, CONDITION_VARIABLES, BOOL) is not True:
                return False
        except ExpressionFailed as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return True
