"""Regular expressions, with RE2's syntax and linear time."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.types import BOOL, INT, STRING, list_of
from torchyard.apiserver.golang.regexp import PatternError, pattern


def _pattern(budget: CostBudget, text: str, expression: str) -> Any:
    budget.spend_text(len(text) * max(1, len(expression) // 4))
    try:
        return pattern(expression)
    except PatternError as error:
        raise EvaluationError(str(error)) from None


def _matches(budget: CostBudget, text: str, expression: str) -> bool:
    return _pattern(budget, text, expression).search(text) is not None


def _find(budget: CostBudget, text: str, expression: str) -> str:
    match = _pattern(budget, text, expression).search(text)
    return str(match.group()) if match else ""


def _find_all(budget: CostBudget, text: str, expression: str, limit: int = -1) -> list[str]:
    compiled = _pattern(budget, text, expression)
    matches: list[str] = []
    for match in compiled.finditer(text):
        if 0 <= limit <= len(matches):
            break
        matches.append(match.group())
    return matches


FUNCTIONS: tuple[FunctionDecl, ...] = (
    function(
        "matches",
        _matches,
        member_overload(STRING, STRING, result=BOOL),
        overload(STRING, STRING, result=BOOL),
        metered=True,
    ),
    function("find", _find, member_overload(STRING, STRING, result=STRING), metered=True),
    function(
        "findAll",
        _find_all,
        member_overload(STRING, STRING, result=list_of(STRING)),
        member_overload(STRING, STRING, INT, result=list_of(STRING)),
        metered=True,
    ),
)
