"""Expressions of admission: match conditions, and what policies demand."""

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

# What one expression may cost: some tenths of a second at worst.
COST_LIMIT = 300_000

VariableTypes = tuple[tuple[str, CelType], ...]
CONDITION_VARIABLES: VariableTypes = (("object", DYN), ("oldObject", DYN), ("request", DYN))


class ExpressionFailed(Exception):
    """An expression that came to no result."""


@lru_cache(maxsize=1024)
def compiled_program(expression: str, names: VariableTypes, wanted: CelType | None) -> Program:
    """A compiled expression, kept. Raises ValueError in the words of the real server."""
    try:
        compiled = compile_expression(expression, dict(names), kubernetes_library())
    except CompileError as error:
        raise ValueError(f"compilation failed: {error.message}") from None
    if wanted is not None and compiled.type != wanted:
        raise ValueError(f"must evaluate to {wanted} but got {compiled.type}")
    return compiled


def expression_variables(asked: VersionedAttributes, original: VersionedAttributes) -> Object:
    """The variables every expression sees."""
    shown = admission_request(asked, original)
    return {
        "object": asked.obj,
        "oldObject": asked.old,
        "request": {k: v for k, v in shown.items() if k not in _HIDDEN},
    }


_HIDDEN = frozenset({"uid", "object", "oldObject"})


def evaluate(expression: str, variables: Object, names: VariableTypes, wanted: CelType | None) -> Any:
    """The value of an expression. Raises ExpressionFailed."""
    try:
        return compiled_program(expression, names, wanted).evaluate(variables, CostBudget(COST_LIMIT))
    except ValueError as error:
        raise ExpressionFailed(str(error)) from None
    except EvaluationError as error:
        raise ExpressionFailed(f"expression '{expression}' resulted in error: {error}") from None
    except CostLimitExceeded:
        raise ExpressionFailed(f"validation failed due to running out of cost budget: '{expression}'") from None


def match_conditions_hold(conditions: list[Object], asked: VersionedAttributes, original: VersionedAttributes) -> bool:
    """Whether all match conditions hold; one that does not outweighs one that failed. Raises ExpressionFailed."""
    variables = expression_variables(asked, original)
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
