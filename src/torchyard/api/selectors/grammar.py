"""Parser of label selectors such as `app=web,tier in (a, b),!debug`, with upstream's grammar and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api import errors, field_errors, names

EQUALS, NOT_EQUALS, IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GREATER, LESS = (
    "=",
    "!=",
    "in",
    "notin",
    "exists",
    "!",
    "gt",
    "lt",
)
_BINARY_OPERATORS = "in, notin, =, ==, !=, gt, lt"
is_integer = re.compile(r"[-+]?\d{1,19}", re.ASCII).fullmatch


class Requirement(NamedTuple):
    """A requirement on one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


_run = re.compile(r"[ \t\r\n]*([=!(),<>]+|[^=!(),<> \t\r\n]+|$)")
_SYMBOLS = ("==", "!=", "=", "!", "(", ")", ",", ">", "<")


class _Parser:
    """Parses a label selector by upstream's grammar and with upstream's errors."""

    def __init__(self, text: str) -> None:
        self._words = [*_tokens(text), ""]
        self._at = 0

    def _next(self) -> str:
        word = self._words[self._at]
        self._at = min(self._at + 1, len(self._words) - 1)
        return word

    def _peek(self) -> str:
        return self._words[self._at]

    def requirements(self) -> list[Requirement]:
        parsed: list[Requirement] = []
        word = self._peek()
        if not word:
            return parsed
        if word != "!" and not _is_identifier(word):
            raise errors.bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
        while True:
            parsed.append(self._requirement())
            word = self._next()
            if not word:
                return parsed
            if word != ",":
                raise errors.bad_request(f"found '{word}', expected: ',' or 'end of string'")
            word = self._peek()
            if word != "!" and not _is_identifier(word):
                raise errors.bad_request(f"found '{word}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        key = self._next()
        absent = key == "!"
        if absent:
            key = self._next()
        if not _is_identifier(key):
            raise _parse_error(f"found '{key}', expected: identifier")
        if problems := names.qualified_name_problems(key):
            raise _parse_error(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
        if absent:
            return Requirement(key, DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key, EXISTS)
        operator = self._next()
        if operator in ("in", "notin"):
            values = tuple(sorted(self._values()))
        elif operator in ("=", "==", "!=", ">", "<"):
            values = (self._value(),)
        else:
            raise _parse_error(f"found '{operator}', expected: {_BINARY_OPERATORS}")
        return _validate(Requirement(key, {"==": EQUALS, ">": GREATER, "<": LESS}.get(operator, operator), values))

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        word = self._next()
        if not _is_identifier(word):
            raise _parse_error(f"found '{word}', expected: identifier")
        return word

    def _values(self) -> set[str]:
        word = self._next()
        if word != "(":
            raise _parse_error(f"found '{word}' expected: '('")
        word = self._peek()
        if word == ")":
            self._next()
            return {""}
        if word != "," and not _is_identifier(word):
            raise _parse_error(f"found '{word}', expected: ',', ')' or identifier")
        values: set[str] = set()
        last = ","
        while True:
            word = self._next()
            if _is_identifier(word):
                if last != ",":
                    raise _parse_error(f"found '{word}', expected: ',' or ')'")
                values.add(word)
            elif word in (",", ")"):
                # nothing between two commas is the empty value
                if last == ",":
                    values.add("")
                if word == ")":
                    return values
            else:
                expected = "',', or identifier" if last == "," else "',' or ')'"
                raise _parse_error(f"found '{word}', expected: {expected}")
            last = word


def _tokens(text: str) -> Iterable[str]:
    at = 0
    while match := _run.match(text, at):
        run = match.group(1)
        if not run:
            return
        if run[0] in "=!(),<>":
            run = next(symbol for symbol in _SYMBOLS if run.startswith(symbol))
        yield run
        at = match.start(1) + len(run)


def _is_identifier(word: str) -> bool:
    return bool(word) and word[0] not in "=!(),<>"


def _parse_error(why: str) -> errors.StatusError:
    return errors.bad_request(f"unable to parse requirement: {why}")


def _validate(requirement: Requirement) -> Requirement:
    problems = []
    for index, value in enumerate(requirement.values):
        at = f"values[{index}]"
        if requirement.operator in (GREATER, LESS) and not is_integer(value):
            problems.append(
                str(field_errors.invalid(at, value, "for 'Gt', 'Lt' operators, the value must be an integer"))
            )
        if value_problems := names.label_value_problems(value):
            problems.append(str(field_errors.invalid(f"{at}[{requirement.key}]", value, "; ".join(value_problems))))
    if problems:
        raise _parse_error(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return requirement


def parse(text: str) -> list[Requirement]:
    """Parse a text into requirements. Raises 400 with the expected token."""
    return _Parser(text).requirements()
