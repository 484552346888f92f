"""Functions and operators by name, each with its overloads: what it takes, what it answers, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torchyard.apiserver.cel.types import CelType


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. A method's first type is its target's."""

    takes: tuple[CelType, ...]
    gives: CelType
    method: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `run` gets the evaluated arguments, target first.

    `metered` ones get the budget before them; `lenient` ones tell themselves what they cannot take.
    """

    name: str
    run: Callable[..., Any]
    overloads: tuple[Overload, ...]
    metered: bool = False
    lenient: bool = False


def function(
    name: str, run: Callable[..., Any], *overloads: Overload, metered: bool = False, lenient: bool = False
) -> Function:
    return Function(name, run, overloads, metered, lenient)


def call(*takes: CelType, gives: CelType) -> Overload:
    return Overload(takes, gives)


def method(*takes: CelType, gives: CelType) -> Overload:
    return Overload(takes, gives, method=True)


class Library:
    """Functions by name and number of arguments, the target counted."""

    def __init__(self, *parts: Iterable[Function]) -> None:
        self._functions: dict[str, list[Function]] = {}
        for part in parts:
            for one in part:
                self._functions.setdefault(one.name, []).append(one)

    def find(self, name: str) -> list[Function]:
        return self._functions.get(name, [])
