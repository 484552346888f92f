"""Regular expressions, in RE2's syntax and time."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.budget import Budget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import Function, call, function, method
from torchyard.apiserver.cel.types import BOOL, INT, STRING, list_of
from torchyard.apiserver.golang.regexp import PatternError, pattern


def _pattern(budget: Budget, text: str, expression: str) -> Any:
    budget.spend_text(len(text) * max(1, len(expression) // 4))
    try:
        return pattern(expression)
    except PatternError as error:
        raise EvaluationError(str(error)) from None


def _matches(budget: Budget, text: str, expression: str) -> bool:
    return _pattern(budget, text, expression).search(text) is not None


def _find(budget: Budget, text: str, expression: str) -> str:
    found = _pattern(budget, text, expression).search(text)
    return str(found.group()) if found else ""


def _find_all(budget: Budget, text: str, expression: str, limit: int = -1) -> list[str]:
    compiled = _pattern(budget, text, expression)
    found: list[str] = []
    for match in compiled.finditer(text):
        if 0 <= limit <= len(found):
            break
        found.append(match.group())
    return found


FUNCTIONS: tuple[Function, ...] = (
    function("matches", _matches, method(STRING, STRING, gives=BOOL), call(STRING, STRING, gives=BOOL), metered=True),
    function("find", _find, method(STRING, STRING, gives=STRING), metered=True),
    function(
        "findAll",
        _find_all,
        method(STRING, STRING, gives=list_of(STRING)),
        method(STRING, STRING, INT, gives=list_of(STRING)),
        metered=True,
    ),
)
