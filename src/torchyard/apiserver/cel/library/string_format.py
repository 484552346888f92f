"""The string functions `format` (`"%s of %d".format([a, b])`) and `strings.quote`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.library.times import format_duration, format_timestamp
from torchyard.apiserver.cel.values import Duration, Timestamp, TypeValue, is_number, type_name
from torchyard.apiserver.golang.values import go_number

_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d+))?(.)|$)", re.DOTALL)
_MAX_PRECISION, _MAX_PRECISION_DIGITS = 1000, 9
_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


def quote_string(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def format_string(budget: CostBudget, pattern: str, values: list[Any]) -> str:
    """Replace the clauses of the pattern by the values, in order."""
    remaining = iter(values)
    used = 0

    def clause(match: re.Match[str]) -> str:
        nonlocal used
        if match.group(1):
            return "%"
        kind, precision = match.group(3), match.group(2)
        if kind is None:
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        write = _CLAUSES.get(kind)
        if write is None:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{kind}"')
        if used >= len(values):
            raise EvaluationError(f"index {used} out of range")
        used += 1
        if precision and (len(precision) > _MAX_PRECISION_DIGITS or int(precision) > _MAX_PRECISION):
            raise EvaluationError(f"precision {precision} is too large")
        digits = int(precision) if precision else 6
        text = write(next(remaining), digits)
        budget.spend_text(len(text))
        return text

    budget.spend_text(len(pattern))
    return _CLAUSE.sub(clause, pattern)


def _clause_error(clause: str, value: Any, expected: str) -> EvaluationError:
    return EvaluationError(
        f"error during formatting: {clause} clause can only be used on {expected}, was given {type_name(value)}"
    )


def _text(value: Any, _: int = 0) -> str:  # noqa: PLR0911 - one return per CEL type
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_number(value) if value.is_integer() or abs(value) < 1e21 else repr(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(map(_inner, value))}]"
    if isinstance(value, dict):
        entries = sorted((_inner(key), _inner(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in entries) + "}"
    return str(value)


def _inner(value: Any) -> str:
    return quote_string(value) if isinstance(value, str) else _text(value)


def _decimal(value: Any, _: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _clause_error("decimal", value, "integers")
    return str(int(value))


def _fixed(value: Any, precision: int) -> str:
    if not is_number(value):
        raise _clause_error("fixed-point", value, "doubles")
    return f"{value:.{precision}f}"


def _scientific(value: Any, precision: int) -> str:
    if not is_number(value):
        raise _clause_error("scientific", value, "doubles")
    return f"{value:.{precision}e}"


def _binary(value: Any, _: int) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if not isinstance(value, int):
        raise _clause_error("binary", value, "integers and bools")
    return f"{value:b}"


def _octal(value: Any, _: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _clause_error("octal", value, "integers")
    return f"{value:o}"


def _hex(value: Any, _: int) -> str:
    if isinstance(value, (str, bytes)):
        return (value.encode() if isinstance(value, str) else value).hex()
    if isinstance(value, bool) or not isinstance(value, int):
        raise _clause_error("hex", value, "integers, byte buffers, and strings")
    return f"{value:x}"


_CLAUSES: dict[str, Callable[[Any, int], str]] = {
    "s": _text,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda value, precision: _hex(value, precision).upper(),
}
