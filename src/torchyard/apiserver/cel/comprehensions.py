"""Macros over lists and maps, running: each turn is paid for, and the result is cut short where it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torchyard.apiserver.cel.errors import EvaluationError, no_such_overload

Interpretable = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ComprehensionLoop:
    """What to go through, the slots of one or two variables, and what to do each turn."""

    over: Interpretable
    slot: int
    variables: int
    step: Interpretable
    condition: Interpretable | None
    weight: int

    def turns(self, frame: Any) -> Iterator[Any]:
        """Sets the variables of each turn; yields the first one's value."""
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

    def holds(self, frame: Any) -> bool:
        """Whether the turn's predicate is true."""
        answer = self.step(frame)
        if answer is not True and answer is not False:
            raise no_such_overload()
        return bool(answer)

    def chosen(self, frame: Any) -> Iterator[Any]:
        """The turns that the condition lets through."""
        for item in self.turns(frame):
            if self.condition is None or self.condition(frame) is True:
                yield item


def _decided_by(answer: bool) -> Callable[[ComprehensionLoop], Interpretable]:
    """`all` is decided by a false, `exists` by a true; until then, an error may be overruled."""

    def build(loop: ComprehensionLoop) -> Interpretable:
        def run(frame: Any) -> bool:
            error: EvaluationError | None = None
            for _ in loop.turns(frame):
                try:
                    if loop.holds(frame) is answer:
                        return answer
                except EvaluationError as failed:
                    error = error or failed
            if error is not None:
                raise error
            return not answer

        return run

    return build


def _exists_one(loop: ComprehensionLoop) -> Interpretable:
    def run(frame: Any) -> bool:
        return sum(loop.holds(frame) for _ in loop.turns(frame)) == 1

    return run


def _filter(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: [item for item in loop.turns(frame) if loop.holds(frame)]


def _map(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: [loop.step(frame) for _ in loop.chosen(frame)]


def _transform_map(loop: ComprehensionLoop) -> Interpretable:
    return lambda frame: {key: loop.step(frame) for key in loop.chosen(frame)}


def _transform_entries(loop: ComprehensionLoop) -> Interpretable:
    def run(frame: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in loop.chosen(frame):
            for key, value in loop.step(frame).items():
                if key in found:
                    raise EvaluationError(f"insert failed: key {key} already exists")
                found[key] = value
        return found

    return run


KINDS: dict[str, Callable[[ComprehensionLoop], Interpretable]] = {
    "all": _decided_by(False),
    "exists": _decided_by(True),
    "existsOne": _exists_one,
    "filter": _filter,
    "map": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entries,
}
