"""The expression tree. Every node has the source offset that errors about it point at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Expr:
    offset: int


@dataclass(slots=True)
class LiteralExpr(Expr):
    value: Any


@dataclass(slots=True)
class IdentExpr(Expr):
    name: str


@dataclass(slots=True)
class SelectExpr(Expr):
    """`operand.field`; `has(operand.field)` with `test`; `operand.?field` with `optional`."""

    operand: Expr
    field: str
    test: bool = False
    optional: bool = False


@dataclass(slots=True)
class CallExpr(Expr):
    """A call of a function, an operator (`_+_`), or, with a target, a member function."""

    function: str
    args: list[Expr]
    target: Expr | None = None


@dataclass(slots=True)
class ListExpr(Expr):
    items: list[Expr]
    optional: set[int] = field(default_factory=set)  # the positions of `?item`


@dataclass(slots=True)
class MapExpr(Expr):
    keys: list[Expr]
    values: list[Expr]
    optional: set[int] = field(default_factory=set)  # the positions of `?key: value`


@dataclass(slots=True)
class ComprehensionExpr(Expr):
    """A macro over a list or map: `all`, `exists`, `existsOne`, `map`, `filter`, `transformMap` ...

    `step` is the predicate or the mapped value; `condition` restricts a mapping.
    """

    kind: str
    range: Expr
    variables: tuple[str, ...]
    step: Expr
    condition: Expr | None = None


@dataclass(slots=True)
class BindExpr(Expr):
    """A local variable: the expansion of `optMap` and `optFlatMap`."""

    variable: str
    optional: Expr
    body: Expr
    flat: bool
