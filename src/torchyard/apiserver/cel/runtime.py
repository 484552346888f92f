"""The Python functions that a compiled expression consists of, besides those of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError, no_such_overload
from torchyard.apiserver.cel.functions import FunctionDecl
from torchyard.apiserver.cel.types import CelType
from torchyard.apiserver.cel.values import (
    NONE,
    MapList,
    Optional,
    SetList,
    TypeValue,
    equal,
    is_number,
    traversal_cost,
    type_name,
)


class Frame:
    """The state of one evaluation: the variables by compiler-assigned slot, and the cost budget."""

    __slots__ = ("budget", "slots")

    def __init__(self, slots: list[Any], budget: CostBudget) -> None:
        self.slots = slots
        self.budget = budget


Interpretable = Callable[[Frame], Any]


def _missing(key: Any) -> EvaluationError:
    return EvaluationError(f"no such key: {key}")


def run_field(operand: Interpretable, key: str) -> Interpretable:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        if type(value) is not dict:
            raise no_such_overload()
        try:
            return value[key]
        except KeyError:
            raise _missing(key) from None

    return run


def run_has(operand: Interpretable, key: str) -> Interpretable:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        if isinstance(value, Optional):
            value = value.value if value.present else {}
        if type(value) is not dict:
            raise no_such_overload()
        return key in value

    return run


def run_optional_field(operand: Interpretable, key: str) -> Interpretable:
    def run(frame: Frame) -> Optional:
        value = operand(frame)
        if isinstance(value, Optional):
            if not value.present:
                return NONE
            value = value.value
        if type(value) is not dict:
            raise no_such_overload()
        return Optional(value[key]) if key in value else NONE

    return run


def run_conditional(test: Interpretable, then: Interpretable, other: Interpretable) -> Interpretable:
    def run(frame: Frame) -> Any:
        condition = test(frame)
        if condition is True:
            return then(frame)
        if condition is False:
            return other(frame)
        raise no_such_overload()

    return run


_CONTAINERS = frozenset({str, bytes, list, dict, SetList, MapList})


def run_equality(left: Interpretable, right: Interpretable, *, negated: bool) -> Interpretable:
    def run(frame: Frame) -> bool:
        left_value, right_value = left(frame), right(frame)
        if type(left_value) in _CONTAINERS:
            frame.budget.spend(traversal_cost(left_value))
        return equal(left_value, right_value) is not negated

    return run


def run_and(left: Interpretable, right: Interpretable) -> Interpretable:
    """False takes precedence over an error, on either side."""

    def run(frame: Frame) -> bool:
        try:
            left_value = left(frame)
        except EvaluationError:
            if right(frame) is False:
                return False
            raise
        if left_value is False:
            return False
        right_value = right(frame)
        if right_value is False:
            return False
        if left_value is True and right_value is True:
            return True
        raise no_such_overload()

    return run


def run_or(left: Interpretable, right: Interpretable) -> Interpretable:
    """True takes precedence over an error, on either side."""

    def run(frame: Frame) -> bool:
        try:
            left_value = left(frame)
        except EvaluationError:
            if right(frame) is True:
                return True
            raise
        if left_value is True:
            return True
        right_value = right(frame)
        if right_value is True:
            return True
        if left_value is False and right_value is False:
            return False
        raise no_such_overload()

    return run


def run_list_of(runs: list[Interpretable], optional: frozenset[int]) -> Interpretable:
    if not optional:
        return lambda frame: [run(frame) for run in runs]

    def run(frame: Frame) -> list[Any]:
        items: list[Any] = []
        for index, part in enumerate(runs):
            value = part(frame)
            if index not in optional:
                items.append(value)
            elif value.present:
                items.append(value.value)
        return items

    return run


def run_map_of(keys: list[Interpretable], values: list[Interpretable], optional: frozenset[int]) -> Interpretable:
    def run(frame: Frame) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for index, (key, part) in enumerate(zip(keys, values, strict=True)):
            name, value = key(frame), part(frame)
            if not isinstance(name, (str, int)):
                raise EvaluationError(f"unsupported key type: {type_name(name)}")
            if index in optional:
                if not value.present:
                    continue
                value = value.value
            entries[name] = value
        return entries

    return run


def run_invocation(candidates: list[FunctionDecl], args: list[Interpretable], *, dynamic: bool) -> Interpretable:
    """Call a function; with `dynamic`, the overload is chosen by the argument values."""
    first = candidates[0]
    call = first.run
    if dynamic:
        return _dispatch_dynamically(candidates, args)
    if first.metered:
        return lambda frame: call(frame.budget, *[arg(frame) for arg in args])
    if not any(_reads_text(overload.arg_types) for overload in first.overloads):
        if len(args) == 1:
            (only,) = args
            return lambda frame: call(only(frame))
        if len(args) == 2:
            left, right = args
            return lambda frame: call(left(frame), right(frame))
        return lambda frame: call(*[arg(frame) for arg in args])

    def run(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        _spend_texts(frame.budget, values)
        return call(*values)

    return run


def _reads_text(arg_types: Sequence[CelType]) -> bool:
    return any(kind.name in ("string", "bytes", "dyn") for kind in arg_types)


def _spend_texts(budget: CostBudget, values: list[Any]) -> None:
    """A function that does not meter itself reads each of its texts once."""
    for value in values:
        if isinstance(value, str | bytes):
            budget.spend_text(len(value))


def _dispatch_dynamically(candidates: list[FunctionDecl], args: list[Interpretable]) -> Interpretable:
    """Choose the declaration by the arguments' Python types; each combination is resolved once."""
    by_types: dict[tuple[type, ...], FunctionDecl] = {}

    def run(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        kinds = tuple(map(type, values))
        declaration = by_types.get(kinds)
        if declaration is None:
            declaration = by_types[kinds] = _select_overload(candidates, values)
        if declaration.metered:
            return declaration.run(frame.budget, *values)
        _spend_texts(frame.budget, values)
        return declaration.run(*values)

    return run


def _select_overload(candidates: list[FunctionDecl], values: list[Any]) -> FunctionDecl:
    if candidates[0].checks_arguments:
        return candidates[0]
    for declaration in candidates:
        for overload in declaration.overloads:
            if len(overload.arg_types) == len(values) and all(map(_has_type, values, overload.arg_types)):
                return declaration
    raise no_such_overload()


def _has_type(value: Any, kind: CelType) -> bool:
    """Whether a value is of a type; type parameters are not checked."""
    name = kind.name
    if name in ("A", "B", "dyn"):
        return True
    if name == "type":
        return isinstance(value, TypeValue)
    if name == "null":
        return value is None
    if name in ("int", "uint", "double"):
        return is_number(value) and type_name(value) == name
    return type_name(value) == name
