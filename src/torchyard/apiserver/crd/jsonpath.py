"""JSONPath for printer columns: fields, indexes, slices, wildcards, filters, recursive descent.

A path is compiled once into a list of steps; each step maps a list of values to the next one. A missing field is not
an error: the result is empty.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

PathStep = Callable[[list[Any]], list[Any]]


class PathError(ValueError):
    """A path that does not parse."""


class JSONPath:
    """A compiled path; `find(obj)` returns the values at the path, in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = list(_steps(text))

    def find(self, obj: Any) -> list[Any]:
        values = [obj]
        for step in self._steps:
            values = step(values)
            if not values:
                break
        return values


_NAME = re.compile(r"(?:\\.|[^.\[\]\\\s])+")
_BRACKET = re.compile(r"\[((?:'(?:\\.|[^'])*'|\"(?:\\.|[^\"])*\"|[^\]'\"])*)\]")
_FILTER = re.compile(r"\?\(\s*(@[^=!<>\s]*)\s*(?:(==|!=|<=|>=|<|>)\s*(.+?))?\s*\)", re.DOTALL)
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _steps(text: str) -> Iterator[PathStep]:
    at = 1 if text.startswith(("$", "@")) else 0
    while at < len(text):
        if text.startswith("..", at):
            yield _descend
            at += 1
        bracket = _BRACKET.match(text, at + text.startswith(".[", at))
        name = _NAME.match(text, at + 1) if text[at] == "." else None
        if bracket is not None:
            yield _bracket(bracket.group(1).strip())
            at = bracket.end()
        elif name is not None:
            field = re.sub(r"\\(.)", r"\1", name.group())
            yield _wildcard if field == "*" else _field(field)
            at = name.end()
        elif text[at:] == ".":
            return
        else:
            raise PathError(f"invalid JSONPath {text!r} at position {at}")


def _bracket(inside: str) -> PathStep:
    if inside == "*":
        return _wildcard
    if inside.startswith("?"):
        return _filter(inside)
    if inside[:1] in ("'", '"'):
        quoted = re.findall(r"'((?:\\.|[^'])*)'|\"((?:\\.|[^\"])*)\"", inside)
        # As upstream: a dot inside quotes still separates fields, unless it is escaped.
        paths = [JSONPath(f".{single or double}") for single, double in quoted]
        return lambda values: [result for value in values for path in paths for result in path.find(value)]
    if ":" in inside:
        return _slice(inside)
    try:
        return _indexes([int(part) for part in inside.split(",")])
    except ValueError:
        raise PathError(f"invalid array index {inside}") from None


def _field(name: str) -> PathStep:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _wildcard(values: list[Any]) -> list[Any]:
    children: list[Any] = []
    for value in values:
        if isinstance(value, dict):
            children.extend(value[name] for name in sorted(value))
        elif isinstance(value, list):
            children.extend(value)
    return children


def _descend(values: list[Any]) -> list[Any]:
    descendants: list[Any] = []
    for value in values:
        descendants.append(value)
        if isinstance(value, (dict, list)):
            descendants.extend(_descend(_wildcard([value])))
    return descendants


def _indexes(indexes: list[int]) -> PathStep:
    def step(values: list[Any]) -> list[Any]:
        return [
            value[index]
            for value in values
            if isinstance(value, list)
            for index in indexes
            if -len(value) <= index < len(value)
        ]

    return step


def _slice(inside: str) -> PathStep:
    parts = inside.split(":")
    try:
        bounds = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        raise PathError(f"invalid array slice {inside}") from None
    if len(parts) > 3:
        raise PathError(f"invalid array slice {inside}")
    part = slice(*bounds)
    if part.step is not None and part.step <= 0:
        raise PathError("step must be > 0")
    return lambda values: [item for value in values if isinstance(value, list) for item in value[part]]


def _filter(inside: str) -> PathStep:
    match = _FILTER.fullmatch(inside)
    if match is None:
        raise PathError(f"unsupported filter {inside}")
    path = JSONPath(match.group(1))
    if match.group(2) is None:
        return lambda values: [item for item in _wildcard(values) if path.find(item)]
    compare, literal = _COMPARE[match.group(2)], _literal(match.group(3))

    def matches(item: Any) -> bool:
        values = path.find(item)
        try:
            return len(values) == 1 and bool(compare(values[0], literal))
        except TypeError:
            return False

    return lambda values: [item for item in _wildcard(values) if matches(item)]


def _literal(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if re.search("[.eE]", text) else int(text)
    except ValueError:
        raise PathError(f"unsupported value {text} in the filter") from None
