"""The functions a compiled expression is made of, beside those of the library."""

from __future__ import annotations

from collections.abc import Callable
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
    """The variables of one run, by the slots the compiler gave them, and what is left to spend."""

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
        answer = test(frame)
        if answer is True:
            return then(frame)
        if answer is False:
            return other(frame)
        raise no_such_overload()

    return run


_LARGE = frozenset({str, bytes, list, dict, SetList, MapList})


def run_equality(left: Interpretable, right: Interpretable, *, negated: bool) -> Interpretable:
    def run(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        if type(one) in _LARGE:
            frame.budget.spend(traversal_cost(one))
        return equal(one, other) is not negated

    return run


def run_and(left: Interpretable, right: Interpretable) -> Interpretable:
    """False wins over an error, on either side."""

    def run(frame: Frame) -> bool:
        try:
            answer = left(frame)
        except EvaluationError:
            if right(frame) is False:
                return False
            raise
        if answer is False:
            return False
        other = right(frame)
        if other is False:
            return False
        if answer is True and other is True:
            return True
        raise no_such_overload()

    return run


def run_or(left: Interpretable, right: Interpretable) -> Interpretable:
    """True wins over an error, on either side."""

    def run(frame: Frame) -> bool:
        try:
            answer = left(frame)
        except EvaluationError:
            if right(frame) is True:
                return True
            raise
        if answer is True:
            return True
        other = right(frame)
        if other is True:
            return True
        if answer is False and other is False:
            return False
        raise no_such_overload()

    return run


def run_list_of(runs: list[Interpretable], optional: frozenset[int]) -> Interpretable:
    if not optional:
        return lambda frame: [run(frame) for run in runs]

    def run(frame: Frame) -> list[Any]:
        found: list[Any] = []
        for index, part in enumerate(runs):
            value = part(frame)
            if index not in optional:
                found.append(value)
            elif value.present:
                found.append(value.value)
        return found

    return run


def run_map_of(keys: list[Interpretable], values: list[Interpretable], optional: frozenset[int]) -> Interpretable:
    def run(frame: Frame) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for index, (key, part) in enumerate(zip(keys, values, strict=True)):
            name, value = key(frame), part(frame)
            if not isinstance(name, (str, int)):
                raise EvaluationError(f"unsupported key type: {type_name(name)}")
            if index in optional:
                if not value.present:
                    continue
                value = value.value
            found[name] = value
        return found

    return run


def run_invocation(candidates: list[FunctionDecl], args: list[Interpretable], *, dynamic: bool) -> Interpretable:
    """The call of a function; where types are known only now, they are looked at first."""
    first = candidates[0]
    call = first.run
    if dynamic:
        return _dispatched(candidates, args)
    if first.metered:
        return lambda frame: call(frame.budget, *[arg(frame) for arg in args])
    if len(args) == 1:
        (only,) = args
        return lambda frame: call(only(frame))
    if len(args) == 2:
        left, right = args
        return lambda frame: call(left(frame), right(frame))
    return lambda frame: call(*[arg(frame) for arg in args])


def _dispatched(candidates: list[FunctionDecl], args: list[Interpretable]) -> Interpretable:
    """Which function takes the values is found once for each combination of their Python types."""
    known: dict[tuple[type, ...], FunctionDecl] = {}

    def run(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        kinds = tuple(map(type, values))
        found = known.get(kinds)
        if found is None:
            found = known[kinds] = _taking(candidates, values)
        return found.run(frame.budget, *values) if found.metered else found.run(*values)

    return run


def _taking(candidates: list[FunctionDecl], values: list[Any]) -> FunctionDecl:
    if candidates[0].checks_arguments:
        return candidates[0]
    for one in candidates:
        for overload in one.overloads:
            if len(overload.arg_types) == len(values) and all(map(_is_of, values, overload.arg_types)):
                return one
    raise no_such_overload()


def _is_of(value: Any, kind: CelType) -> bool:
    """Whether a value is of a type, looking at its top only."""
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
