"""Expressions of admission: match conditions, and what policies demand."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torchyard.api.objects import Object
from torchyard.apiserver.access.webhooks.asked import Asked
from torchyard.apiserver.access.webhooks.review import request
from torchyard.apiserver.cel.budget import Budget
from torchyard.apiserver.cel.errors import CompileError, EvaluationError, OverBudget
from torchyard.apiserver.cel.library import kubernetes
from torchyard.apiserver.cel.program import Program, compile_expression
from torchyard.apiserver.cel.types import BOOL, DYN, CelType

# What one expression may cost: some tenths of a second at worst.
STEPS = 300_000

Names = tuple[tuple[str, CelType], ...]
CONDITION: Names = (("object", DYN), ("oldObject", DYN), ("request", DYN))


class ExpressionFailed(Exception):
    """An expression that came to no result."""


@lru_cache(maxsize=1024)
def program(expression: str, names: Names, wanted: CelType | None) -> Program:
    """A compiled expression, kept. Raises ValueError in the words of the real server."""
    try:
        compiled = compile_expression(expression, dict(names), kubernetes())
    except CompileError as error:
        raise ValueError(f"compilation failed: {error.message}") from None
    if wanted is not None and compiled.type != wanted:
        raise ValueError(f"must evaluate to {wanted} but got {compiled.type}")
    return compiled


def values(asked: Asked, original: Asked) -> Object:
    """The variables every expression sees."""
    shown = request(asked, original)
    return {
        "object": asked.obj,
        "oldObject": asked.old,
        "request": {k: v for k, v in shown.items() if k not in _HIDDEN},
    }


_HIDDEN = frozenset({"uid", "object", "oldObject"})


def evaluate(expression: str, variables: Object, names: Names, wanted: CelType | None) -> Any:
    """The value of an expression. Raises ExpressionFailed."""
    try:
        return program(expression, names, wanted).evaluate(variables, Budget(STEPS))
    except ValueError as error:
        raise ExpressionFailed(str(error)) from None
    except EvaluationError as error:
        raise ExpressionFailed(f"expression '{expression}' resulted in error: {error}") from None
    except OverBudget:
        raise ExpressionFailed(f"validation failed due to running out of cost budget: '{expression}'") from None


def holds(conditions: list[Object], asked: Asked, original: Asked) -> bool:
    """Whether all match conditions hold; one that does not outweighs one that failed. Raises ExpressionFailed."""
    variables = values(asked, original)
    failed: ExpressionFailed | None = None
    for condition in conditions:
        try:
            if evaluate(condition.get("expression") or "", variables, CONDITION, BOOL) is not True:
                return False
        except ExpressionFailed as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return True
