"""CEL types and their assignability."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CelType:
    """A type by name, with parameters: `list(string)`, `map(string, int)`."""

    name: str
    params: tuple[CelType, ...] = ()
    nullable: bool = False  # null is assignable to it

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name


@dataclass(frozen=True, slots=True, eq=False)
class ObjectField:
    """A field of an object: its type, and its JSON name, which need not be an identifier."""

    type: CelType
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(CelType):
    """An object with declared fields, by the names that expressions use."""

    fields: dict[str, ObjectField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypeParam(CelType):
    """A type parameter of a function, or a type that is not inferred yet."""


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
    """An opaque type, which only its own functions accept."""
    return CelType(name, nullable=True)


class Substitution:
    """The inferred types of the type parameters so far."""

    def __init__(self) -> None:
        self._bound: dict[str, CelType] = {}
        self._fresh = 0

    def fresh_param(self) -> TypeParam:
        self._fresh += 1
        return TypeParam(f"_var{self._fresh}")

    def instantiate(self, types: tuple[CelType, ...]) -> tuple[CelType, ...]:
        """The types of a signature with fresh type parameters."""
        names: dict[str, CelType] = {}

        def renamed(kind: CelType) -> CelType:
            if isinstance(kind, TypeParam):
                return names.setdefault(kind.name, self.fresh_param())
            return CelType(kind.name, tuple(map(renamed, kind.params)), kind.nullable) if kind.params else kind

        return tuple(map(renamed, types))

    def resolve(self, kind: CelType) -> CelType:
        """A type with its parameters replaced; unbound parameters become dyn."""
        if isinstance(kind, TypeParam):
            bound = self._bound.get(kind.name)
            return DYN if bound is None else self.resolve(bound)
        return CelType(kind.name, tuple(map(self.resolve, kind.params)), kind.nullable) if kind.params else kind

    def shallow(self, kind: CelType) -> CelType:
        """The type that a parameter is bound to; other types as they are."""
        while isinstance(kind, TypeParam) and kind.name in self._bound:
            kind = self._bound[kind.name]
        return kind

    def assignable(self, target: CelType, value: CelType) -> bool:
        """Whether a value of one type is assignable to another; parameters are bound only if it is."""
        before = dict(self._bound)
        if self._assign(target, value):
            return True
        self._bound = before
        return False

    def all_assignable(self, targets: tuple[CelType, ...], values: tuple[CelType, ...]) -> bool:
        before = dict(self._bound)
        if len(targets) == len(values) and all(map(self._assign, targets, values)):
            return True
        self._bound = before
        return False

    def _assign(self, target: CelType, value: CelType) -> bool:
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
            and all(map(self._assign, target.params, value.params))
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
        return any(self._occurs(name, kind) for kind in inside.params)

    def format(self, kind: CelType) -> str:
        """A type as it appears in messages."""
        kind = self.shallow(kind)
        if isinstance(kind, TypeParam):
            return "dyn"
        if kind.params:
            return f"{kind.name}({', '.join(map(self.format, kind.params))})"
        return kind.name
