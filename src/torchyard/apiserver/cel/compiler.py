"""Checks an expression's types and turns it into nested Python functions, in one walk over its nodes: `Walk`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torchyard.apiserver.cel import comprehensions, runtime
from torchyard.apiserver.cel.ast import (
    BindExpr,
    CallExpr,
    ComprehensionExpr,
    Expr,
    IdentExpr,
    ListExpr,
    LiteralExpr,
    MapExpr,
    SelectExpr,
)
from torchyard.apiserver.cel.errors import Issue
from torchyard.apiserver.cel.functions import FunctionDecl, Library
from torchyard.apiserver.cel.literal_checks import literal_error
from torchyard.apiserver.cel.parser import qualified
from torchyard.apiserver.cel.runtime import Frame, Interpretable
from torchyard.apiserver.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    CelType,
    ObjectType,
    Substitution,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from torchyard.apiserver.cel.values import NONE, Optional, TypeValue, Uint


class CompiledExpr(NamedTuple):
    type: CelType
    run: Interpretable


_LITERALS: dict[type, CelType] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_TYPE_NAMES = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "string": STRING,
    "bytes": BYTES,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "type": type_of(DYN),
    "optional_type": optional_of(DYN),
    **{name: CelType(name) for name in ("google.protobuf.Timestamp", "google.protobuf.Duration")},
    **{name: CelType(name) for name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.URL")},
}


def _nothing(frame: Frame) -> Any:
    raise AssertionError("an expression with faults does not run")


_FAULTY = CompiledExpr(DYN, _nothing)


class ExpressionCompiler:
    """One pass. Faults are collected in `issues`; what they touch is taken to be of any type."""

    def __init__(self, source: str, variables: Mapping[str, CelType], library: Library) -> None:
        self.source = source
        self.library = library
        self.types = Substitution()
        self.issues: list[Issue] = []
        self.mixed: list[Issue] = []  # literals of this and that: told only if nothing else is wrong
        self.uses: set[str] = set()
        self.slots = len(variables)
        self._outer = frozenset(variables)
        self._scope: dict[str, tuple[int, CelType]] = {
            name: (slot, kind) for slot, (name, kind) in enumerate(variables.items())
        }

    def visit(self, node: Expr) -> CompiledExpr:
        match node:
            case LiteralExpr():
                value = node.value
                return CompiledExpr(_LITERALS[type(value)], lambda frame: value)
            case IdentExpr():
                return self._ident(node)
            case SelectExpr():
                return self._select(node)
            case CallExpr():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case ComprehensionExpr():
                return self._comprehension(node)
            case BindExpr():
                return self._bind(node)
        raise AssertionError(node)

    def _error(self, offset: int, message: str) -> CompiledExpr:
        self.issues.append(Issue(offset, message))
        return _FAULTY

    def _undeclared(self, offset: int, name: str) -> CompiledExpr:
        return self._error(offset, f"undeclared reference to '{name}' (in container '')")

    def _ident(self, node: IdentExpr) -> CompiledExpr:
        known = self._scope.get(node.name)
        if known is not None:
            slot, kind = known
            if node.name in self._outer and slot < len(self._outer):
                self.uses.add(node.name)
            return CompiledExpr(kind, lambda frame: frame.slots[slot])
        return self._type_ident(node.name) or self._undeclared(node.offset, node.name)

    def _type_ident(self, name: str) -> CompiledExpr | None:
        if name not in _TYPE_NAMES:
            return None
        value = TypeValue(name)
        return CompiledExpr(type_of(_TYPE_NAMES[name]), lambda frame: value)

    def _select(self, node: SelectExpr) -> CompiledExpr:
        name = qualified(node)
        if name and name.partition(".")[0] not in self._scope and (found := self._type_ident(name)):
            return found
        operand = self.visit(node.operand)
        kind = self.types.shallow(operand.type)
        is_optional = kind.name == "optional_type"
        inner = self.types.shallow(kind.params[0]) if is_optional else kind
        field = self._field(inner, node)
        if field is None:
            return _FAULTY
        field_type, key = field
        if node.test:
            return CompiledExpr(BOOL, runtime.run_has(operand.run, key))
        if is_optional or node.optional:
            return CompiledExpr(optional_of(field_type), runtime.run_optional_field(operand.run, key))
        return CompiledExpr(field_type, runtime.run_field(operand.run, key))

    def _field(self, kind: CelType, node: SelectExpr) -> tuple[CelType, str] | None:
        if isinstance(kind, ObjectType):
            field = kind.fields.get(node.field)
            if field is None:
                self._error(node.offset, f"undefined field '{node.field}'")
                return None
            return field.type, field.key
        if kind.name == "map":
            return kind.params[1], node.field
        if self.types.resolve(kind) == DYN:
            return DYN, node.field
        self._error(node.offset, f"type '{self.types.shown(kind)}' does not support field selection")
        return None

    def _call(self, node: CallExpr) -> CompiledExpr:
        if node.target is None and node.function in _LOGIC:
            return self._logic(node)
        if node.target is not None and (name := qualified(node.target)):
            # a namespaced function such as `optional.of`, unless a variable is called so
            full = f"{name}.{node.function}"
            if name.partition(".")[0] not in self._scope and self.library.find(full):
                return self._function(CallExpr(node.offset, full, node.args))
        return self._function(node)

    def _logic(self, node: CallExpr) -> CompiledExpr:
        args = [self.visit(arg) for arg in node.args]
        if node.function == "_?_:_":
            shared = self.types.fresh()
            given = tuple(arg.type for arg in args)
            if not self.types.all_assignable((BOOL, shared, shared), given):
                return self._no_overload(node, given, is_method=False)
            return CompiledExpr(shared, runtime.run_conditional(*(arg.run for arg in args)))
        if node.function in ("_==_", "_!=_"):
            shared, given = self.types.fresh(), tuple(arg.type for arg in args)
            if not self.types.all_assignable((shared, shared), given):
                return self._no_overload(node, given, is_method=False)
            return CompiledExpr(BOOL, runtime.run_equality(args[0].run, args[1].run, negated=node.function == "_!=_"))
        for arg, part in zip(args, node.args, strict=True):
            if not self.types.assignable(BOOL, arg.type):
                self._error(part.offset, f"expected type 'bool' but found '{self.types.shown(arg.type)}'")
        combine = runtime.run_and if node.function == "_&&_" else runtime.run_or
        return CompiledExpr(BOOL, combine(args[0].run, args[1].run))

    def _function(self, node: CallExpr) -> CompiledExpr:
        functions = self.library.find(node.function)
        parts = [*([node.target] if node.target is not None else []), *node.args]
        if not functions:
            for part in parts:
                self.visit(part)
            return self._undeclared(node.offset, node.function)
        args = [self._argument(part, node) for part in parts]
        given = tuple(arg.type for arg in args)
        result: CelType | None = None
        candidates: list[FunctionDecl] = []
        for one in functions:
            for overload in one.overloads:
                if overload.is_member != (node.target is not None):
                    continue
                takes = self.types.instance((*overload.arg_types, overload.result_type))
                if self.types.all_assignable(takes[:-1], given):
                    gives = takes[-1]
                    same = result is None or self.types.resolve(result) == self.types.resolve(gives)
                    result = gives if same else DYN
                    if one not in candidates:
                        candidates.append(one)
        if result is None:
            return self._no_overload(node, given, is_method=node.target is not None)
        if (error := literal_error(node)) is not None:
            return self._error(*error)
        dynamic = any(self._is_dynamic(one) for one in given)
        return CompiledExpr(result, runtime.run_invocation(candidates, [arg.run for arg in args], dynamic=dynamic))

    def _argument(self, part: Expr, call: CallExpr) -> CompiledExpr:
        """Only in the values of `format` may a literal hold this and that."""
        known = len(self.mixed)
        compiled = self.visit(part)
        if call.function == "format":
            del self.mixed[known:]
        return compiled

    def _is_dynamic(self, kind: CelType) -> bool:
        """Whether only a value tells which overload takes it: null may stand for a time, and none of them takes it."""
        resolved = self.types.resolve(kind)
        return resolved in (DYN, NULL) or any(map(self._is_dynamic, resolved.params))

    def _no_overload(self, node: CallExpr, given: tuple[CelType, ...], *, is_method: bool) -> CompiledExpr:
        shown = [self.types.shown(one) for one in given]
        said = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
        return self._error(node.offset, f"found no matching overload for '{node.function}' applied to '{said}'")

    def _list(self, node: ListExpr) -> CompiledExpr:
        item: CelType = self.types.fresh()
        runs: list[Interpretable] = []
        for index, part in enumerate(node.items):
            compiled = self.visit(part)
            kind = compiled.type
            if index in node.optional:
                kind = self._unwrapped(part.offset, kind)
            item = self._joined(item, kind, part.offset)
            runs.append(compiled.run)
        return CompiledExpr(list_of(item), runtime.run_list_of(runs, frozenset(node.optional)))

    def _joined(self, known: CelType, kind: CelType, offset: int) -> CelType:
        """What the elements of a literal have in common."""
        if self.types.assignable(known, kind):
            return known
        shown = self.types.shown
        self.mixed.append(Issue(offset, f"expected type '{shown(known)}' but found '{shown(kind)}'"))
        return DYN

    def _join(self, wanted: CelType, kind: CelType, offset: int) -> None:
        if not self.types.assignable(wanted, kind):
            shown = self.types.shown
            self._error(offset, f"expected type '{shown(wanted)}' but found '{shown(kind)}'")

    def _unwrapped(self, offset: int, kind: CelType) -> CelType:
        inner = self.types.fresh()
        self._join(optional_of(inner), kind, offset)
        return inner

    def _map(self, node: MapExpr) -> CompiledExpr:
        key: CelType = self.types.fresh()
        value: CelType = self.types.fresh()
        keys: list[Interpretable] = []
        values: list[Interpretable] = []
        for index, (key_part, value_part) in enumerate(zip(node.keys, node.values, strict=True)):
            one, other = self.visit(key_part), self.visit(value_part)
            key = self._joined(key, one.type, key_part.offset)
            kind = self._unwrapped(value_part.offset, other.type) if index in node.optional else other.type
            value = self._joined(value, kind, value_part.offset)
            keys.append(one.run)
            values.append(other.run)
        return CompiledExpr(map_of(key, value), runtime.run_map_of(keys, values, frozenset(node.optional)))

    def _comprehension(self, node: ComprehensionExpr) -> CompiledExpr:
        over = self.visit(node.range)
        kinds = self._range_types(over.type, node)
        if kinds is None:
            return _FAULTY
        hidden = {name: self._scope.get(name) for name in node.variables}
        first = self.slots
        self.slots += len(node.variables)
        for index, (name, kind) in enumerate(zip(node.variables, kinds, strict=True)):
            self._scope[name] = (first + index, kind)
        condition = self.visit(node.condition) if node.condition is not None else None
        step = self.visit(node.step)
        for name, before in hidden.items():
            if before is None:
                del self._scope[name]
            else:
                self._scope[name] = before
        is_predicate = node.kind in ("all", "exists", "existsOne", "filter")
        for part, compiled in ((node.condition, condition), (node.step, step if is_predicate else None)):
            if part is not None and compiled is not None:
                self._join(BOOL, compiled.type, part.offset)
        loop = comprehensions.ComprehensionLoop(
            over.run, first, len(node.variables), step.run, condition.run if condition else None, _weight(node.step)
        )
        return CompiledExpr(self._result_type(node, over.type, kinds, step.type), comprehensions.KINDS[node.kind](loop))

    def _range_types(self, over: CelType, node: ComprehensionExpr) -> tuple[CelType, ...] | None:
        """The types of the variables a macro goes through a value with."""
        kind, two = self.types.shallow(over), len(node.variables) == 2
        if kind.name == "list":
            return (INT, kind.params[0]) if two else (kind.params[0],)
        if kind.name == "map":
            return kind.params if two else kind.params[:1]
        if self.types.resolve(kind) == DYN:
            return (DYN, DYN) if two else (DYN,)
        shown = self.types.shown(kind)
        self._error(
            node.range.offset,
            f"expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return None

    def _result_type(
        self, node: ComprehensionExpr, over: CelType, kinds: tuple[CelType, ...], step: CelType
    ) -> CelType:
        match node.kind:
            case "all" | "exists" | "existsOne":
                return BOOL
            case "filter":
                return list_of(kinds[0])
            case "map":
                return list_of(step)
            case "transformMap":
                return map_of(kinds[0], step)
        entry = self.types.shallow(step)
        return entry if entry.name == "map" else map_of(DYN, DYN)

    def _bind(self, node: BindExpr) -> CompiledExpr:
        optional = self.visit(node.optional)
        inner = self._unwrapped(node.optional.offset, optional.type)
        slot, self.slots = self.slots, self.slots + 1
        hidden = self._scope.get(node.variable)
        self._scope[node.variable] = (slot, inner)
        body = self.visit(node.body)
        if hidden is None:
            del self._scope[node.variable]
        else:
            self._scope[node.variable] = hidden
        result = body.type if node.flat else optional_of(body.type)

        def run(frame: Frame) -> Any:
            value = optional.run(frame)
            if not value.present:
                return NONE
            frame.slots[slot] = value.value
            found = body.run(frame)
            return found if node.flat else Optional(found)

        return CompiledExpr(result, run)


_LOGIC = frozenset({"_&&_", "_||_", "_?_:_", "_==_", "_!=_"})


def _weight(node: Expr) -> int:
    """How many nodes an expression has: what one turn of a loop costs."""
    match node:
        case SelectExpr():
            return 1 + _weight(node.operand)
        case CallExpr():
            return 1 + sum(map(_weight, node.args)) + (_weight(node.target) if node.target else 0)
        case ListExpr():
            return 1 + sum(map(_weight, node.items))
        case MapExpr():
            return 1 + sum(map(_weight, node.keys)) + sum(map(_weight, node.values))
    return 1
