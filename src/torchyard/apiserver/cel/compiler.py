"""Checks the types of an expression and compiles it to nested Python functions, in one pass over its tree."""

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
from torchyard.apiserver.cel.parser import RESERVED, qualified
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


def _never_run(frame: Frame) -> Any:
    raise AssertionError("an expression with errors cannot be evaluated")


_INVALID = CompiledExpr(DYN, _never_run)


class ExpressionCompiler:
    """One pass over the tree. Errors are collected in `issues`; an invalid subexpression has type dyn."""

    def __init__(self, source: str, variables: Mapping[str, CelType], library: Library) -> None:
        self.source = source
        self.library = library
        self.types = Substitution()
        self.issues: list[Issue] = []
        self.mixed_literals: list[
            Issue
        ] = []  # literals with elements of several types: reported only if there is no other error
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
        return _INVALID

    def _undeclared(self, offset: int, name: str) -> CompiledExpr:
        return self._error(offset, f"undeclared reference to '{name}' (in container '')")

    def _ident(self, node: IdentExpr) -> CompiledExpr:
        variable = self._scope.get(node.name)
        if variable is not None:
            slot, kind = variable
            if node.name in self._outer and slot < len(self._outer):
                self.uses.add(node.name)
            return CompiledExpr(kind, lambda frame: frame.slots[slot])
        return self._type_identifier(node.name) or self._undeclared(node.offset, node.name)

    def _type_identifier(self, name: str) -> CompiledExpr | None:
        if name not in _TYPE_NAMES:
            return None
        value = TypeValue(name)
        return CompiledExpr(type_of(_TYPE_NAMES[name]), lambda frame: value)

    def _select(self, node: SelectExpr) -> CompiledExpr:
        name = qualified(node)
        if name and name.partition(".")[0] not in self._scope and (type_ident := self._type_identifier(name)):
            return type_ident
        operand = self.visit(node.operand)
        kind = self.types.shallow(operand.type)
        is_optional = kind.name == "optional_type"
        inner = self.types.shallow(kind.params[0]) if is_optional else kind
        field = self._field(inner, node)
        if field is None:
            return _INVALID
        field_type, key = field
        if node.test:
            return CompiledExpr(BOOL, runtime.run_has(operand.run, key))
        if is_optional or node.optional:
            return CompiledExpr(optional_of(field_type), runtime.run_optional_field(operand.run, key))
        return CompiledExpr(field_type, runtime.run_field(operand.run, key))

    def _field(self, kind: CelType, node: SelectExpr) -> tuple[CelType, str] | None:
        if isinstance(kind, ObjectType):
            # a keyword is a field's name too, beside its escaped form
            field = kind.fields.get(node.field) or kind.fields.get(
                f"__{node.field}__" if node.field in RESERVED else ""
            )
            if field is None:
                self._error(node.offset, f"undefined field '{node.field}'")
                return None
            return field.type, field.key
        if kind.name == "map":
            return kind.params[1], node.field
        if self.types.resolve(kind) == DYN:
            return DYN, node.field
        self._error(node.offset, f"type '{self.types.format(kind)}' does not support field selection")
        return None

    def _call(self, node: CallExpr) -> CompiledExpr:
        if node.target is None and node.function in _LOGICAL_OPERATORS:
            return self._logic(node)
        if node.target is not None and (name := qualified(node.target)):
            # a namespaced function such as `optional.of`, unless a variable has that name
            full = f"{name}.{node.function}"
            if name.partition(".")[0] not in self._scope and self.library.find(full):
                return self._function(CallExpr(node.offset, full, node.args))
        return self._function(node)

    def _logic(self, node: CallExpr) -> CompiledExpr:
        args = [self.visit(arg) for arg in node.args]
        if node.function == "_?_:_":
            shared = self.types.fresh_param()
            arg_types = tuple(arg.type for arg in args)
            if not self.types.all_assignable((BOOL, shared, shared), arg_types):
                return self._no_overload(node, arg_types, is_method=False)
            return CompiledExpr(shared, runtime.run_conditional(*(arg.run for arg in args)))
        if node.function in ("_==_", "_!=_"):
            shared, arg_types = self.types.fresh_param(), tuple(arg.type for arg in args)
            if not self.types.all_assignable((shared, shared), arg_types):
                return self._no_overload(node, arg_types, is_method=False)
            return CompiledExpr(BOOL, runtime.run_equality(args[0].run, args[1].run, negated=node.function == "_!=_"))
        for arg, part in zip(args, node.args, strict=True):
            if not self.types.assignable(BOOL, arg.type):
                self._error(part.offset, f"expected type 'bool' but found '{self.types.format(arg.type)}'")
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
        arg_types = tuple(arg.type for arg in args)
        result: CelType | None = None
        candidates: list[FunctionDecl] = []
        for candidate in functions:
            for overload in candidate.overloads:
                if overload.is_member != (node.target is not None):
                    continue
                takes = self.types.instantiate((*overload.arg_types, overload.result_type))
                if self.types.all_assignable(takes[:-1], arg_types):
                    gives = takes[-1]
                    same = result is None or self.types.resolve(result) == self.types.resolve(gives)
                    result = gives if same else DYN
                    if candidate not in candidates:
                        candidates.append(candidate)
        if result is None:
            return self._no_overload(node, arg_types, is_method=node.target is not None)
        if (error := literal_error(node)) is not None:
            return self._error(*error)
        dynamic = any(self._is_dynamic(kind) for kind in arg_types)
        return CompiledExpr(result, runtime.run_invocation(candidates, [arg.run for arg in args], dynamic=dynamic))

    def _argument(self, part: Expr, call: CallExpr) -> CompiledExpr:
        """Compile an argument. Only the arguments of `format` may be literals with elements of several types."""
        mixed_before = len(self.mixed_literals)
        compiled = self.visit(part)
        if call.function == "format":
            del self.mixed_literals[mixed_before:]
        return compiled

    def _is_dynamic(self, kind: CelType) -> bool:
        """Whether the overload depends on the value at run time. Null does: only its type is assignable."""
        resolved = self.types.resolve(kind)
        return resolved in (DYN, NULL) or any(map(self._is_dynamic, resolved.params))

    def _no_overload(self, node: CallExpr, arg_types: tuple[CelType, ...], *, is_method: bool) -> CompiledExpr:
        type_names = [self.types.format(arg_type) for arg_type in arg_types]
        signature = f"{type_names[0]}.({', '.join(type_names[1:])})" if is_method else f"({', '.join(type_names)})"
        return self._error(node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'")

    def _list(self, node: ListExpr) -> CompiledExpr:
        item: CelType = self.types.fresh_param()
        runs: list[Interpretable] = []
        for index, part in enumerate(node.items):
            compiled = self.visit(part)
            kind = compiled.type
            if index in node.optional:
                kind = self._unwrap_optional(part.offset, kind)
            item = self._join_types(item, kind, part.offset)
            runs.append(compiled.run)
        return CompiledExpr(list_of(item), runtime.run_list_of(runs, frozenset(node.optional)))

    def _join_types(self, common: CelType, kind: CelType, offset: int) -> CelType:
        """The common type of a literal's elements; dyn if there is none."""
        if self.types.assignable(common, kind):
            return common
        format_type = self.types.format
        self.mixed_literals.append(
            Issue(offset, f"expected type '{format_type(common)}' but found '{format_type(kind)}'")
        )
        return DYN

    def _expect_type(self, expected: CelType, kind: CelType, offset: int) -> None:
        if not self.types.assignable(expected, kind):
            format_type = self.types.format
            self._error(offset, f"expected type '{format_type(expected)}' but found '{format_type(kind)}'")

    def _unwrap_optional(self, offset: int, kind: CelType) -> CelType:
        inner = self.types.fresh_param()
        self._expect_type(optional_of(inner), kind, offset)
        return inner

    def _map(self, node: MapExpr) -> CompiledExpr:
        key: CelType = self.types.fresh_param()
        value: CelType = self.types.fresh_param()
        keys: list[Interpretable] = []
        values: list[Interpretable] = []
        for index, (key_part, value_part) in enumerate(zip(node.keys, node.values, strict=True)):
            key_expr, value_expr = self.visit(key_part), self.visit(value_part)
            key = self._join_types(key, key_expr.type, key_part.offset)
            kind = (
                self._unwrap_optional(value_part.offset, value_expr.type) if index in node.optional else value_expr.type
            )
            value = self._join_types(value, kind, value_part.offset)
            keys.append(key_expr.run)
            values.append(value_expr.run)
        return CompiledExpr(map_of(key, value), runtime.run_map_of(keys, values, frozenset(node.optional)))

    def _comprehension(self, node: ComprehensionExpr) -> CompiledExpr:
        over = self.visit(node.range)
        kinds = self._range_types(over.type, node)
        if kinds is None:
            return _INVALID
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
                self._expect_type(BOOL, compiled.type, part.offset)
        loop = comprehensions.ComprehensionLoop(
            over.run, first, len(node.variables), step.run, condition.run if condition else None, node_count(node.step)
        )
        return CompiledExpr(self._result_type(node, over.type, kinds, step.type), comprehensions.KINDS[node.kind](loop))

    def _range_types(self, over: CelType, node: ComprehensionExpr) -> tuple[CelType, ...] | None:
        """The types of a comprehension's variables over a value of this type."""
        kind, two = self.types.shallow(over), len(node.variables) == 2
        if kind.name == "list":
            return (INT, kind.params[0]) if two else (kind.params[0],)
        if kind.name == "map":
            return kind.params if two else kind.params[:1]
        if self.types.resolve(kind) == DYN:
            return (DYN, DYN) if two else (DYN,)
        type_name = self.types.format(kind)
        self._error(
            node.range.offset,
            f"expression of type '{type_name}' cannot be range of a comprehension (must be list, map, or dynamic)",
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
        inner = self._unwrap_optional(node.optional.offset, optional.type)
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
            result_value = body.run(frame)
            return result_value if node.flat else Optional(result_value)

        return CompiledExpr(result, run)


_LOGICAL_OPERATORS = frozenset({"_&&_", "_||_", "_?_:_", "_==_", "_!=_"})


def node_count(node: Expr) -> int:
    """The number of nodes of an expression, outside of comprehensions: the cost of one evaluation or iteration."""
    match node:
        case SelectExpr():
            return 1 + node_count(node.operand)
        case CallExpr():
            return 1 + sum(map(node_count, node.args)) + (node_count(node.target) if node.target else 0)
        case ListExpr():
            return 1 + sum(map(node_count, node.items))
        case MapExpr():
            return 1 + sum(map(node_count, node.keys)) + sum(map(node_count, node.values))
    return 1
