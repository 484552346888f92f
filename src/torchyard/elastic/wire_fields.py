"""Checks the fields of a message: builds a converter for each field from the annotations of its class.

A frame may come from a broken or hostile peer. A message that passes has exactly the types of its class: numbers that
fit into the ledger, and strings that can be encoded. So no code behind it has to check them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

MAX_INT = (1 << 62) - 1
"""The ledger stores numbers below 2**63; this leaves room to count on."""

Converter = Callable[[Any], Any]


def converters(message_type: type[Any]) -> dict[str, Converter]:
    """Return the converter of each field of a dataclass."""
    hints = get_type_hints(message_type)
    return {field.name: _converter(hints[field.name]) for field in fields(message_type)}


def _converter(hint: Any) -> Converter:  # noqa: PLR0911  # one branch for each kind of annotation
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return lambda value: _choice(value, arguments)
    if origin is UnionType:  # `float | None`: a loss, which may also be infinite or not a number
        return _loss
    if origin is dict:
        item = _converter(arguments[1])
        return lambda value: {_text(key): item(entry) for key, entry in _expect(value, dict).items()}
    if origin is tuple and arguments[-1] is Ellipsis:
        item = _converter(arguments[0])
        return lambda value: tuple(item(entry) for entry in _expect(value, list))
    if origin is tuple:
        return _fixed(tuple, [_converter(argument) for argument in arguments])
    record: type[Any] = hint
    if is_dataclass(record):
        known = converters(record)
        build: Callable[..., Any] = record
        return lambda value: build(**{key: known[key](item) for key, item in _expect(value, dict).items()})
    if issubclass(record, StrEnum):
        return lambda value: record(_text(value))
    if issubclass(record, tuple):  # a NamedTuple
        return _fixed(lambda items: record(*items), [_converter(item) for item in get_type_hints(record).values()])
    raise TypeError(f"a message cannot have a field of type {hint}")


def _fixed(build: Callable[[Any], Any], items: list[Converter]) -> Converter:
    return lambda value: build([convert(entry) for convert, entry in zip(items, _expect(value, list), strict=True)])


def _expect(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    number: int = _expect(value, int)
    if not 0 <= number <= MAX_INT:
        raise ValueError("a number is negative or too large")
    return number


def _number(value: Any) -> float:
    number = value if type(value) in (int, float) else _expect(value, float)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return float(number)


def _loss(value: Any) -> float | None:
    return value if value is None or type(value) is float else _number(value)


def _text(value: Any) -> str:
    text: str = _expect(value, str)
    text.encode()  # a lone surrogate cannot be stored
    return text


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"expected one of {choices}")
    return value


_SIMPLE: dict[Any, Converter] = {
    int: _count,
    float: _number,
    str: _text,
    bool: lambda value: _expect(value, bool),
    Any: lambda value: value,
}
