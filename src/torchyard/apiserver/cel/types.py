"""The types an expression is checked against, and when one fits another."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CelType:
    """A type by name, with parameters: `list(string)`, `map(string, int)`."""

    name: str
    params: tuple[CelType, ...] = ()
    nullable: bool = False  # null may stand for it

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name


@dataclass(frozen=True, slots=True, eq=False)
class ObjectField:
    """A field of an object: its type, and its name in JSON, which need not be an identifier."""

    type: CelType
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(CelType):
    """An object with known fields, by the names that expressions use."""

    fields: dict[str, ObjectField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypeParam(CelType):
    """A type parameter of a function, or a type not known yet."""


BOOL = CelType("bool")
INT = CelType("int")
UINT = CelType("uint")
DOUBLE = CelType("double")
STRING = CelType("string")
BYTES = CelType("bytes")
NULL = CelType("null", nullable=True)
DYN = CelType("dyn", nullable=True)
TIMESTAMP = CelType("google.protobuf.Timestamp", nullable=True)
DURATION = CelType("google.protobuf.Duration", nullable=True)
A = TypeParam("A")
B = TypeParam("B")


def list_of(item: CelType) -> CelType:
    return CelType("list", (item,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType("optional_type", (value,), nullable=True)


def type_of(value: CelType) -> CelType:
    return CelType("type", (value,))


def opaque(name: str) -> CelType:
    """A type that only its own functions know."""
    return CelType(name, nullable=True)


class Substitution:
    """What the type parameters met so far stand for."""

    def __init__(self) -> None:
        self._bound: dict[str, CelType] = {}
        self._fresh = 0

    def fresh(self) -> TypeParam:
        self._fresh += 1
        return TypeParam(f"_var{self._fresh}")

    def instance(self, types: tuple[CelType, ...]) -> tuple[CelType, ...]:
        """The types of a function with parameters of its own."""
        names: dict[str, CelType] = {}

        def renamed(one: CelType) -> CelType:
            if isinstance(one, TypeParam):
                return names.setdefault(one.name, self.fresh())
            return CelType(one.name, tuple(map(renamed, one.params)), one.nullable) if one.params else one

        return tuple(map(renamed, types))

    def resolve(self, one: CelType) -> CelType:
        """A type with its parameters replaced; those that stand for nothing become dyn."""
        if isinstance(one, TypeParam):
            bound = self._bound.get(one.name)
            return DYN if bound is None else self.resolve(bound)
        return CelType(one.name, tuple(map(self.resolve, one.params)), one.nullable) if one.params else one

    def shallow(self, one: CelType) -> CelType:
        """What a type is at its top, as far as known."""
        while isinstance(one, TypeParam) and one.name in self._bound:
            one = self._bound[one.name]
        return one

    def assignable(self, target: CelType, value: CelType) -> bool:
        """Whether a value of one type may stand where another is wanted; parameters are bound only if so."""
        before = dict(self._bound)
        if self._fits(target, value):
            return True
        self._bound = before
        return False

    def all_assignable(self, targets: tuple[CelType, ...], values: tuple[CelType, ...]) -> bool:
        before = dict(self._bound)
        if len(targets) == len(values) and all(map(self._fits, targets, values)):
            return True
        self._bound = before
        return False

    def _fits(self, target: CelType, value: CelType) -> bool:
        target, value = self.shallow(target), self.shallow(value)
        if isinstance(target, TypeParam) or isinstance(value, TypeParam):
            return self._bind(target, value)
        if DYN in (target, value):
            return True
        if NULL in (target, value):
            return target.nullable and value.nullable
        if isinstance(target, ObjectType) or isinstance(value, ObjectType):
            return target is value or target.name == value.name
        return (
            target.name == value.name
            and len(target.params) == len(value.params)
            and all(map(self._fits, target.params, value.params))
        )

    def _bind(self, target: CelType, value: CelType) -> bool:
        if target == value:
            return True
        param, other = (target, value) if isinstance(target, TypeParam) else (value, target)
        if self._occurs(param.name, other):
            return False
        self._bound[param.name] = other
        return True

    def _occurs(self, name: str, inside: CelType) -> bool:
        inside = self.shallow(inside)
        if isinstance(inside, TypeParam):
            return inside.name == name
        return any(self._occurs(name, one) for one in inside.params)

    def shown(self, one: CelType) -> str:
        """A type as messages write it."""
        one = self.shallow(one)
        if isinstance(one, TypeParam):
            return "dyn"
        if one.params:
            return f"{one.name}({', '.join(map(self.shown, one.params))})"
        return one.name
