"""Evaluation of comprehensions: every iteration has a cost, and `all` and `exists` short-circuit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError, no_such_overload
from torchyard.apiserver.cel.runtime import Interpretable


@dataclass(frozen=True, slots=True)
class ComprehensionLoop:
    """The range, the slots of one or two variables, and the step of each iteration."""

    over: Interpretable
    slot: int
    variables: int
    step: Interpretable
    condition: Interpretable | None
    weight: int

    def iterations(self, frame: Any) -> Iterator[Any]:
        """Set the variables of each iteration; yields the value of the first one."""
        value = self.over(frame)
        slots, slot, spend, weight = frame.slots, self.slot, frame.budget.spend, self.weight
        if isinstance(value, list):
            items: Any = enumerate(value) if self.variables == 2 else value
        elif isinstance(value, dict):
            items = value.items() if self.variables == 2 else value
        else:
            raise no_such_overload()
        for item in items:
            spend(weight)
            if self.variables == 2:
                slots[slot], slots[slot + 1] = item
            else:
                slots[slot] = item
            yield slots[slot]

    def predicate_holds(self, frame: Any) -> bool:
        """Whether the predicate of the current iteration is true."""
        result = self.step(frame)
        if result is not True and result is not False:
            raise no_such_overload()
        return bool(result)

    def selected(self, frame: Any) -> Iterator[Any]:
        """The iterations whose condition is true."""
        for item in self.iterations(frame):
            if self.condition is None or self.condition(frame) is True:
                yield item


def _short_circuit_on(deciding: bool) -> Callable[[ComprehensionLoop], Interpretable]:
    """`all` stops at the first false, `exists` at the first true; either overrules an earlier error."""

    def build(loop: ComprehensionLoop) -> Interpretable:
        def run(frame: Any) -> bool:
            error: EvaluationError | None = None
            for _ in loop.iterations(frame):
                try:
                    if loop.predicate_holds(frame) is deciding:
                        return deciding
                except EvaluationError as failed:
                    error = error or failed
            if error is not None:
                raise error
            return not deciding

        return run

    return build


def _exists_one(loop: ComprehensionLoop) -> Interpretable:
    def run(frame: Any) -> bool:
        return sum(loop.predicate_holds(frame) for _ in loop.iterations(frame)) == 1

    return run


def _filter(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: [item for item in loop.iterations(frame) if loop.predicate_holds(frame)]


def _map(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: [loop.step(frame) for _ in loop.selected(frame)]


def _transform_map(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: {key: loop.step(frame) for key in loop.selected(frame)}


def _transform_entries(loop: ComprehensionLoop) -> Interpretable:
    def run(frame: Any) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for _ in loop.selected(frame):
            for key, value in loop.step(frame).items():
                if key in entries:
                    raise EvaluationError(f"insert failed: key {key} already exists")
                entries[key] = value
        return entries

    return run


KINDS: dict[str, Callable[[ComprehensionLoop], Interpretable]] = {
    "all": _short_circuit_on(False),
    "exists": _short_circuit_on(True),
    "existsOne": _exists_one,
    "filter": _filter,
    "map": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entries,
}
