"""Errors of expressions, at compile time and at run time."""

from __future__ import annotations

from typing import NamedTuple

from torchyard.api.errors import YardError


class Issue(NamedTuple):
    """One error at one source offset."""

    offset: int
    message: str


class CompileError(YardError):
    """An expression that does not parse or type-check; the message points at the source, as in cel-go."""

    code = "BadExpression"

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues = sorted(issues)
        super().__init__("\n".join(_format_issue(source, issue) for issue in self.issues))


def _format_issue(source: str, issue: Issue) -> str:
    before = source[: issue.offset]
    line, column = before.count("\n") + 1, issue.offset - (before.rfind("\n") + 1)
    text = source.split("\n")[line - 1] if source else ""
    return f"ERROR: <input>:{line}:{column + 1}: {issue.message}\n | {text}\n | {'.' * column}^"


class EvaluationError(Exception):
    """An evaluation without a result: a missing key, an overflow, a division by zero."""


class CostLimitExceeded(Exception):
    """An evaluation that exceeded its cost limit. No operator of the language absorbs this error."""


def conversion_error(target: str, source: str = "string") -> EvaluationError:
    return EvaluationError(f"type conversion error from '{source}' to '{target}'")


def no_such_overload() -> EvaluationError:
    return EvaluationError("no such overload")
