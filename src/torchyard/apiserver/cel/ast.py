"""The nodes of a parsed expression. Each knows the offset that errors about it point at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Node:
    offset: int


@dataclass(slots=True)
class Literal(Node):
    value: Any


@dataclass(slots=True)
class Ident(Node):
    name: str


@dataclass(slots=True)
class Select(Node):
    """`operand.field`; `has(operand.field)` with `test`; `operand.?field` with `optional`."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


@dataclass(slots=True)
class Call(Node):
    """A function, an operator (`_+_`), or a method where there is a target."""

    function: str
    args: list[Node]
    target: Node | None = None


@dataclass(slots=True)
class ListNode(Node):
    items: list[Node]
    optional: set[int] = field(default_factory=set)  # the positions of `?item`


@dataclass(slots=True)
class MapNode(Node):
    keys: list[Node]
    values: list[Node]
    optional: set[int] = field(default_factory=set)  # the positions of `?key: value`


@dataclass(slots=True)
class Struct(Node):
    """`Name{field: value}`: parsed, so that it can be refused by name."""

    name: str


@dataclass(slots=True)
class Comprehension(Node):
    """A macro over a list or map: `all`, `exists`, `existsOne`, `map`, `filter`, `transformMap` ...

    `step` is the predicate or the mapped value; `condition` restricts a mapping.
    """

    kind: str
    range: Node
    variables: tuple[str, ...]
    step: Node
    condition: Node | None = None


@dataclass(slots=True)
class Bind(Node):
    """A local variable: what `optMap` and `optFlatMap` become."""

    variable: str
    optional: Node
    body: Node
    flat: bool
