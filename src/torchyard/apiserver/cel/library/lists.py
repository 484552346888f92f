"""Lists: order, sums, extremes and positions."""

from __future__ import annotations

import itertools
from typing import Any

from torchyard.apiserver.cel.budget import Budget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import Function, function, method
from torchyard.apiserver.cel.library import standard
from torchyard.apiserver.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, A, list_of
from torchyard.apiserver.cel.values import compare, equal, weight

_COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def _is_sorted(budget: Budget, items: list[Any]) -> bool:
    budget.spend(weight(items))
    return all(compare(one, other) <= 0 for one, other in itertools.pairwise(items))


def _sum(budget: Budget, items: list[Any]) -> Any:
    budget.spend(len(items))
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        total = standard.add(budget, total, item)
    return total


def _extreme(name: str, sign: int) -> Any:
    def run(budget: Budget, items: list[Any]) -> Any:
        budget.spend(weight(items))
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        found = items[0]
        for item in items[1:]:
            if compare(item, found) * sign > 0:
                found = item
        return found

    return run


def _position(*, last: bool) -> Any:
    def run(budget: Budget, items: list[Any], wanted: Any) -> int:
        budget.spend(weight(items))
        positions = range(len(items) - 1, -1, -1) if last else range(len(items))
        return next((at for at in positions if equal(items[at], wanted)), -1)

    return run


FUNCTIONS: tuple[Function, ...] = (
    function("isSorted", _is_sorted, *(method(list_of(one), gives=BOOL) for one in _COMPARABLE), metered=True),
    function("sum", _sum, *(method(list_of(one), gives=one) for one in (INT, UINT, DOUBLE, DURATION)), metered=True),
    function("min", _extreme("min", -1), *(method(list_of(one), gives=one) for one in _COMPARABLE), metered=True),
    function("max", _extreme("max", 1), *(method(list_of(one), gives=one) for one in _COMPARABLE), metered=True),
    function("indexOf", _position(last=False), method(list_of(A), A, gives=INT), metered=True),
    function("lastIndexOf", _position(last=True), method(list_of(A), A, gives=INT), metered=True),
)
