"""Arguments that are written out can be looked at before anything runs: patterns, times and durations."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.apiserver.cel.ast import CallExpr, LiteralExpr
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.library.times import duration_of, timestamp_of
from torchyard.apiserver.golang.regexp import PatternError, pattern

_CHECKS: dict[str, Callable[[str], object]] = {
    "matches": pattern,
    "duration": duration_of,
    "timestamp": timestamp_of,
}


def literal_error(node: CallExpr) -> tuple[int, str] | None:
    """Where and why a written-out argument of a call can never be right."""
    check = _CHECKS.get(node.function)
    argument = node.args[-1] if node.args else None
    if check is None or not isinstance(argument, LiteralExpr) or not isinstance(argument.value, str):
        return None
    try:
        check(argument.value)
    except (PatternError, EvaluationError):
        return argument.offset, f"invalid {node.function} argument"
    return None
