"""Compile-time checks of literal arguments: patterns, timestamps and durations."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.apiserver.cel.ast import CallExpr, LiteralExpr
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.library.times import parse_duration, parse_timestamp
from torchyard.apiserver.golang.regexp import PatternError, pattern

_CHECKS: dict[str, Callable[[str], object]] = {
    "matches": pattern,
    "duration": parse_duration,
    "timestamp": parse_timestamp,
}


def literal_error(node: CallExpr) -> tuple[int, str] | None:
    """The offset and message for a literal argument of a call that is always invalid."""
    check = _CHECKS.get(node.function)
    argument = node.args[-1] if node.args else None
    if check is None or not isinstance(argument, LiteralExpr) or not isinstance(argument.value, str):
        return None
    try:
        check(argument.value)
    except (PatternError, EvaluationError):
        return argument.offset, f"invalid {node.function} argument"
    return None
