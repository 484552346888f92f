"""What can be wrong with an expression, before and while it runs."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.errors import YardError


class Issue(NamedTuple):
    """One thing wrong at one place of an expression."""

    offset: int
    message: str


class CompileError(YardError):
    """An expression that does not parse or whose types do not fit; the message shows where, as cel-go does."""

    code = "BadExpression"

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues = sorted(issues)
        super().__init__("\n".join(_shown(source, issue) for issue in self.issues))


def _shown(source: str, issue: Issue) -> str:
    before = source[: issue.offset]
    line, column = before.count("\n") + 1, issue.offset - (before.rfind("\n") + 1)
    text = source.split("\n")[line - 1] if source else ""
    return f"ERROR: <input>:{line}:{column + 1}: {issue.message}\n | {text}\n | {'.' * column}^"


class EvaluationError(Exception):
    """An expression that came to no result: a missing key, an overflow, a division by zero."""


class CostLimitExceeded(Exception):
    """An expression that was stopped because it cost too much. Nothing in an expression can catch it."""


def conversion_error(wanted: str, given: str = "string") -> EvaluationError:
    return EvaluationError(f"type conversion error from '{given}' to '{wanted}'")


def no_such_overload() -> EvaluationError:
    return EvaluationError("no such overload")
