"""The standard functions: operators, size, index and type conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError, conversion_error, no_such_overload
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload, overload
from torchyard.apiserver.cel.library.times import format_duration, format_timestamp
from torchyard.apiserver.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from torchyard.apiserver.cel.values import (
    INT_RANGE,
    NANO,
    NONE,
    Duration,
    MapList,
    Optional,
    SetList,
    Timestamp,
    TypeValue,
    Uint,
    checked_duration,
    checked_int,
    checked_timestamp,
    checked_uint,
    compare,
    equal,
    hashable,
    number,
    traversal_cost,
    type_name,
)
from torchyard.apiserver.golang.values import go_number


def add(budget: CostBudget, left: Any, right: Any) -> Any:
    if isinstance(left, str):
        budget.spend_text(len(left) + len(right))
        return left + right
    if isinstance(left, list):
        budget.spend(
            traversal_cost(left) + traversal_cost(right)
            if isinstance(left, (SetList, MapList))
            else len(left) + len(right)
        )
        return _concatenate(left, right)
    if isinstance(left, bytes):
        budget.spend_text(len(left) + len(right))
        return left + right
    if isinstance(left, float):
        return left + right
    if isinstance(left, Timestamp) or isinstance(right, Timestamp):
        return checked_timestamp(left.nanos + right.nanos)
    if isinstance(left, Duration):
        return checked_duration(left.nanos + right.nanos)
    return number(left + right, left)


def _concatenate(left: list[Any], right: list[Any]) -> list[Any]:
    """Concatenate two lists; a set skips duplicates, and a map list replaces items with the same keys."""
    if isinstance(left, SetList):
        present = {hashable(item) for item in left}
        return SetList([*left, *(item for item in right if hashable(item) not in present)])
    if isinstance(left, MapList):
        newer = {left.key(item): item for item in right}
        merged = [newer.pop(left.key(item), item) for item in left]
        return MapList([*merged, *newer.values()], left.keys)
    return [*left, *right]


def _subtract(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return left - right
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            return checked_duration(left.nanos - right.nanos)
        return checked_timestamp(left.nanos - right.nanos)
    if isinstance(left, Duration):
        return checked_duration(left.nanos - right.nanos)
    return number(left - right, left)


def _multiply(left: Any, right: Any) -> Any:
    return left * right if isinstance(left, float) else number(left * right, left)


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        if right == 0:
            sign = math.copysign(1, left) * math.copysign(1, right)
            return math.nan if left == 0 or math.isnan(left) else sign * math.inf
        return left / right
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return number(quotient if (left < 0) == (right < 0) else -quotient, left)


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(left) % abs(right)
    return number(rest if left >= 0 else -rest, left)


def _negate(value: Any) -> Any:
    return -value if isinstance(value, float) else checked_int(-value)


def _in_list(budget: CostBudget, item: Any, items: Any) -> bool:
    if isinstance(items, dict):
        return _in_map(item, items)
    budget.spend(traversal_cost(items))
    return any(equal(item, member) for member in items)


def _in_map(key: Any, items: dict[Any, Any]) -> bool:
    if isinstance(key, bool):
        return any(key is present_key for present_key in items)
    try:
        return key in items
    except TypeError:
        raise no_such_overload() from None


def _index(container: Any, key: Any) -> Any:
    if isinstance(container, Optional):
        return _optional_index(container, key)
    element = _look_up(container, key)
    if element.present:
        return element.value
    if isinstance(container, list):
        raise EvaluationError(f"index out of bounds: {key}")
    raise EvaluationError(f"no such key: {key}")


def _optional_index(container: Any, key: Any) -> Optional:
    if isinstance(container, Optional):
        return _look_up(container.value, key) if container.present else NONE
    return _look_up(container, key)


def _look_up(container: Any, key: Any) -> Optional:
    if isinstance(container, list):
        if isinstance(key, float):
            if not key.is_integer():
                raise EvaluationError(f"unsupported index value: {go_number(key)}")
            key = int(key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        return Optional(container[key]) if 0 <= key < len(container) else NONE
    if isinstance(container, dict):
        return Optional(container[key]) if _in_map(key, container) else NONE
    raise no_such_overload()


def _ordered(holds: Callable[[int], bool]) -> Callable[[CostBudget, Any, Any], bool]:
    def run(budget: CostBudget, left: Any, right: Any) -> bool:
        if isinstance(left, (str, bytes)):
            budget.spend_text(len(left))
        return holds(compare(left, right))

    return run


def _not(value: bool) -> bool:
    return not value


def _to_int(value: Any) -> int:
    if isinstance(value, float):
        if not math.isfinite(value) or int(value) not in INT_RANGE:
            raise EvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str):
        try:
            return checked_int(_decimal(value))
        except ValueError:
            raise conversion_error("int") from None
    if isinstance(value, Timestamp):
        return value.nanos // NANO
    if isinstance(value, Duration):
        return value.nanos
    return checked_int(int(value))


_MAX_DIGITS = 20  # of a 64-bit integer


def _decimal(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(text)
    if len(digits.lstrip("0")) > _MAX_DIGITS:  # int() rejects thousands of digits
        raise ValueError(text)
    return int(text)


def _to_uint(value: Any) -> Uint:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EvaluationError("unsigned integer overflow")
        return checked_uint(int(value))
    if isinstance(value, str):
        try:
            return checked_uint(_decimal(value))
        except ValueError:
            raise conversion_error("uint") from None
    return checked_uint(int(value))


def _to_double(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise conversion_error("double") from None


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_number(value) if math.isfinite(value) else {"inf": "+Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    return str(value)


_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in _BOOLS:
        raise conversion_error("bool")
    return _BOOLS[value]


def _same(value: Any) -> Any:
    return value


_NUMBERS = (INT, UINT, DOUBLE)
_ORDERED = (
    *(overload(left, right, result=BOOL) for left in _NUMBERS for right in _NUMBERS),
    *(overload(kind, kind, result=BOOL) for kind in (STRING, BYTES, BOOL, TIMESTAMP, DURATION)),
)
_ARITHMETIC = tuple(overload(kind, kind, result=kind) for kind in _NUMBERS)
_SIZED = (STRING, BYTES, list_of(A), map_of(A, B))

FUNCTIONS: tuple[FunctionDecl, ...] = (
    function("_<_", _ordered(lambda sign: sign < 0), *_ORDERED, metered=True),
    function("_<=_", _ordered(lambda sign: sign <= 0), *_ORDERED, metered=True),
    function("_>_", _ordered(lambda sign: sign > 0), *_ORDERED, metered=True),
    function("_>=_", _ordered(lambda sign: sign >= 0), *_ORDERED, metered=True),
    function(
        "_+_",
        add,
        *_ARITHMETIC,
        overload(STRING, STRING, result=STRING),
        overload(BYTES, BYTES, result=BYTES),
        overload(list_of(A), list_of(A), result=list_of(A)),
        overload(DURATION, DURATION, result=DURATION),
        overload(TIMESTAMP, DURATION, result=TIMESTAMP),
        overload(DURATION, TIMESTAMP, result=TIMESTAMP),
        metered=True,
    ),
    function(
        "_-_",
        _subtract,
        *_ARITHMETIC,
        overload(DURATION, DURATION, result=DURATION),
        overload(TIMESTAMP, DURATION, result=TIMESTAMP),
        overload(TIMESTAMP, TIMESTAMP, result=DURATION),
    ),
    function("_*_", _multiply, *_ARITHMETIC),
    function("_/_", _divide, *_ARITHMETIC),
    function("_%_", _modulo, overload(INT, INT, result=INT), overload(UINT, UINT, result=UINT)),
    function("-_", _negate, overload(INT, result=INT), overload(DOUBLE, result=DOUBLE)),
    function("!_", _not, overload(BOOL, result=BOOL)),
    function(
        "@in", _in_list, overload(A, list_of(A), result=BOOL), overload(A, map_of(A, B), result=BOOL), metered=True
    ),
    function(
        "_[_]",
        _index,
        overload(list_of(A), INT, result=A),
        overload(map_of(A, B), A, result=B),
        overload(optional_of(list_of(A)), INT, result=optional_of(A)),
        overload(optional_of(map_of(A, B)), A, result=optional_of(B)),
        checks_arguments=True,
    ),
    function(
        "_[?_]",
        _optional_index,
        overload(list_of(A), INT, result=optional_of(A)),
        overload(map_of(A, B), A, result=optional_of(B)),
        overload(optional_of(list_of(A)), INT, result=optional_of(A)),
        overload(optional_of(map_of(A, B)), A, result=optional_of(B)),
        checks_arguments=True,
    ),
    function(
        "size",
        len,
        *(overload(kind, result=INT) for kind in _SIZED),
        *(member_overload(kind, result=INT) for kind in _SIZED),
    ),
    function("type", lambda value: TypeValue(type_name(value)), overload(A, result=type_of(A))),
    function("dyn", _same, overload(A, result=DYN)),
    function(
        "int", _to_int, *(overload(kind, result=INT) for kind in (INT, UINT, DOUBLE, STRING, TIMESTAMP, DURATION))
    ),
    function("uint", _to_uint, *(overload(kind, result=UINT) for kind in (UINT, INT, DOUBLE, STRING))),
    function("double", _to_double, *(overload(kind, result=DOUBLE) for kind in (DOUBLE, INT, UINT, STRING))),
    function(
        "string",
        _to_string,
        *(overload(kind, result=STRING) for kind in (STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION)),
    ),
    function("bool", _to_bool, overload(BOOL, result=BOOL), overload(STRING, result=BOOL)),
    function(
        "bytes",
        lambda value: value if isinstance(value, bytes) else value.encode(),
        overload(BYTES, result=BYTES),
        overload(STRING, result=BYTES),
    ),
)
