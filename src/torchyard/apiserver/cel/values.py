"""CEL values in Python: JSON values as they are, and a few more types.

int, double, string, bytes, bool, null, list and map are int, float, str, bytes, bool, None, list and dict. In Python
True equals 1 and integers have no bounds; `equal`, `compare` and the arithmetic here follow CEL instead.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError, no_such_overload

INT_RANGE = range(-(2**63), 2**63)
UINT_RANGE = range(2**64)
NANO = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# cel-go's range of timestamps: the years 1 to 9999
MIN_SECONDS, MAX_SECONDS = -62135596800, 253402300799


class Uint(int):
    """An unsigned integer."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970, in UTC."""

    nanos: int

    def moment(self) -> datetime:
        """The time to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.nanos // 1000)

    @classmethod
    def of(cls, moment: datetime, nanos: int = 0) -> Timestamp:
        """A moment without its microseconds, plus nanoseconds."""
        return cls((moment - _EPOCH) // timedelta(seconds=1) * NANO + nanos)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: the result of `type(x)`."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value."""

    value: Any = None
    present: bool = True


NONE = Optional(present=False)


class SetList(list[Any]):
    """A list without order: x-kubernetes-list-type `set`."""


class MapList(list[Any]):
    """A list of objects with key fields: x-kubernetes-list-type `map`."""

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def key(self, item: Any) -> Hashable:
        return tuple(hashable(item.get(name)) for name in self.keys) if isinstance(item, dict) else None


def hashable(value: Any) -> Hashable:
    """A hashable key that is equal for equal values."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    if isinstance(value, dict):
        return ("map", frozenset((hashable(key), hashable(item)) for key, item in value.items()))
    return value  # type: ignore[no-any-return]  # every other value hashes as it compares


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def traversal_cost(value: Any) -> int:
    """The cost of reading a whole value."""
    if isinstance(value, (str, bytes)):
        return len(value) // 10 + 1
    if isinstance(value, list):
        return 1 + sum(map(traversal_cost, value))
    if isinstance(value, dict):
        return 1 + sum(map(traversal_cost, value)) + sum(map(traversal_cost, value.values()))
    return 1


def equal(left: Any, right: Any) -> bool:
    """CEL equality: numbers compare by value, all else only within its type. The caller charges the cost."""
    kind = type(left)
    if kind is type(right) and kind in _SIMPLE:
        return bool(left == right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return _equal_lists(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(key in right and equal(item, right[key]) for key, item in left.items())
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present == right.present and equal(left.value, right.value)
    return type(left) is type(right) and bool(left == right)


_SIMPLE = frozenset({str, int, float, bytes, type(None), Duration, Timestamp, TypeValue})


def _equal_lists(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, SetList) or isinstance(right, SetList):
        return {hashable(item) for item in left} == {hashable(item) for item in right}
    keyed = left if isinstance(left, MapList) else right
    if isinstance(keyed, MapList):
        right_by_key = {keyed.key(item): item for item in right}
        return all(equal(item, right_by_key.get(keyed.key(item), NONE)) for item in left)
    return all(map(equal, left, right))


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; only some types are ordered, and only numbers compare across types."""
    if is_number(left) and is_number(right):
        if math.isnan(left) or math.isnan(right):
            raise EvaluationError("NaN values cannot be ordered")
    elif type(left) is not type(right) or not isinstance(left, _ORDERED):
        raise no_such_overload()
    return int(left > right) - int(left < right)


_ORDERED = (str, bytes, bool, Duration, Timestamp)


def type_name(value: Any) -> str:
    """The name of a value's CEL type."""
    if isinstance(value, Uint):
        return "uint"
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return str(getattr(type(value), "cel_name", "dyn"))


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (type(None), "null_type"),
    (list, "list"),
    (dict, "map"),
    (Timestamp, "google.protobuf.Timestamp"),
    (Duration, "google.protobuf.Duration"),
    (TypeValue, "type"),
    (Optional, "optional_type"),
)


def checked_int(value: int) -> int:
    if value not in INT_RANGE:
        raise EvaluationError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    if value not in UINT_RANGE:
        raise EvaluationError("unsigned integer overflow")
    return Uint(value)


def checked_duration(nanos: int) -> Duration:
    if nanos not in INT_RANGE:
        raise EvaluationError("integer overflow")
    return Duration(nanos)


def checked_timestamp(nanos: int) -> Timestamp:
    if not MIN_SECONDS <= nanos // NANO <= MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)


def number(value: int, like: int) -> int:
    """The result of integer arithmetic, checked for overflow, as int or uint like the operands."""
    return checked_uint(value) if isinstance(like, Uint) else checked_int(value)
