"""Functions and operators by name, each with its overloads: what it takes, what it answers, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torchyard.apiserver.cel.types import CelType


@dataclass(frozen=True, slots=True)
class OverloadDecl:
    """One signature of a function. A method's first type is its target's."""

    arg_types: tuple[CelType, ...]
    result_type: CelType
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class FunctionDecl:
    """A function. `run` gets the evaluated arguments, target first.

    `metered` ones get the budget before them; `lenient` ones tell themselves what they cannot take.
    """

    name: str
    run: Callable[..., Any]
    overloads: tuple[OverloadDecl, ...]
    metered: bool = False
    checks_arguments: bool = False


def function(
    name: str, run: Callable[..., Any], *overloads: OverloadDecl, metered: bool = False, checks_arguments: bool = False
) -> FunctionDecl:
    return FunctionDecl(name, run, overloads, metered, checks_arguments)


def overload(*arg_types: CelType, result: CelType) -> OverloadDecl:
    return OverloadDecl(arg_types, result)


def member_overload(*arg_types: CelType, result: CelType) -> OverloadDecl:
    return OverloadDecl(arg_types, result, is_member=True)


class Library:
    """Functions by name and number of arguments, the target counted."""

    def __init__(self, *parts: Iterable[FunctionDecl]) -> None:
        self._functions: dict[str, list[FunctionDecl]] = {}
        for part in parts:
            for one in part:
                self._functions.setdefault(one.name, []).append(one)

    def find(self, name: str) -> list[FunctionDecl]:
        return self._functions.get(name, [])
