"""The functions of cel-go's string extension; `size` and positions count characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.library.string_format import format_string, quote_string
from torchyard.apiserver.cel.types import BOOL, DYN, INT, STRING, list_of

# Unicode's White_Space; Python's `str.strip` also removes four more control characters
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})
_UPPER = str.maketrans({chr(code): chr(code - 32) for code in range(ord("a"), ord("z") + 1)})


def _bounds(text: str, at: int) -> None:
    if not 0 <= at <= len(text):
        raise EvaluationError(f"index out of range: {at}")


def _char_at(text: str, at: int) -> str:
    _bounds(text, at)
    return text[at : at + 1]


def _index_of(budget: CostBudget, text: str, part: str, start: int = 0) -> int:
    budget.spend_text(len(text))
    if part:
        _bounds(text, start)
    return text.find(part, start) if part else start


def _last_index_of(budget: CostBudget, text: str, part: str, last: int | None = None) -> int:
    budget.spend_text(len(text))
    if last is None:
        return text.rfind(part)
    if not 0 <= last < len(text):
        raise EvaluationError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part))


def _join(budget: CostBudget, items: list[Any], between: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise EvaluationError("no such overload")
    budget.spend_text(sum(map(len, items)) + len(between) * len(items))
    return between.join(items)


def _replace(budget: CostBudget, text: str, old: str, new: str, limit: int = -1) -> str:
    times = text.count(old) if limit < 0 else min(text.count(old), limit)
    budget.spend_text(len(text) + times * len(new))
    return text.replace(old, new, limit)


def _split(budget: CostBudget, text: str, between: str, limit: int = -1) -> list[str]:
    budget.spend(len(text))
    if limit == 0:
        return []
    if not between:
        parts = list(text)
        return parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(between, limit - 1 if limit > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    _bounds(text, start)
    _bounds(text, stop)
    if start > stop:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _paid(run: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a function that reads its text once."""

    def paid(budget: CostBudget, text: str, *more: Any) -> Any:
        budget.spend_text(len(text))
        return run(text, *more)

    return paid


_TEST = member_overload(STRING, STRING, result=BOOL)
FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("contains", _paid(lambda text, part: part in text), _TEST, metered=True),
    function("startsWith", _paid(lambda text, part: text.startswith(part)), _TEST, metered=True),
    function("endsWith", _paid(lambda text, part: text.endswith(part)), _TEST, metered=True),
    function("charAt", _char_at, member_overload(STRING, INT, result=STRING)),
    function(
        "indexOf",
        _index_of,
        member_overload(STRING, STRING, result=INT),
        member_overload(STRING, STRING, INT, result=INT),
        metered=True,
    ),
    function(
        "lastIndexOf",
        _last_index_of,
        member_overload(STRING, STRING, result=INT),
        member_overload(STRING, STRING, INT, result=INT),
        metered=True,
    ),
    function(
        "join",
        _join,
        member_overload(list_of(STRING), result=STRING),
        member_overload(list_of(STRING), STRING, result=STRING),
        metered=True,
    ),
    function(
        "lowerAscii", _paid(lambda text: text.translate(_LOWER)), member_overload(STRING, result=STRING), metered=True
    ),
    function(
        "upperAscii", _paid(lambda text: text.translate(_UPPER)), member_overload(STRING, result=STRING), metered=True
    ),
    function("trim", _paid(lambda text: text.strip(_WHITE)), member_overload(STRING, result=STRING), metered=True),
    function(
        "replace",
        _replace,
        member_overload(STRING, STRING, STRING, result=STRING),
        member_overload(STRING, STRING, STRING, INT, result=STRING),
        metered=True,
    ),
    function(
        "split",
        _split,
        member_overload(STRING, STRING, result=list_of(STRING)),
        member_overload(STRING, STRING, INT, result=list_of(STRING)),
        metered=True,
    ),
    function(
        "substring",
        _substring,
        member_overload(STRING, INT, result=STRING),
        member_overload(STRING, INT, INT, result=STRING),
    ),
    function("format", format_string, member_overload(STRING, list_of(DYN), result=STRING), metered=True),
    function("strings.quote", _paid(quote_string), overload(STRING, result=STRING), metered=True),
)
