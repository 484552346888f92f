"""Declarations of functions and operators, each with its overloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torchyard.apiserver.cel.types import CelType


@dataclass(frozen=True, slots=True)
class OverloadDecl:
    """One signature of a function. The first argument of a member overload is its target."""

    arg_types: tuple[CelType, ...]
    result_type: CelType
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class FunctionDecl:
    """A function and its implementation. `run` gets the evaluated arguments, target first.

    A `metered` function gets the cost budget as its first argument. One with `checks_arguments` rejects unsupported
    argument types itself.
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
    """Function declarations by name."""

    def __init__(self, *parts: Iterable[FunctionDecl]) -> None:
        self._functions: dict[str, list[FunctionDecl]] = {}
        for declarations in parts:
            for declaration in declarations:
                self._functions.setdefault(declaration.name, []).append(declaration)

    def find(self, name: str) -> list[FunctionDecl]:
        return self._functions.get(name, [])
