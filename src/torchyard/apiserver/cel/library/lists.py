"""Lists: order, sums, extremes and positions."""

from __future__ import annotations

import itertools
from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.errors import EvaluationError
from torchyard.apiserver.cel.functions import FunctionDecl, function, member_overload
from torchyard.apiserver.cel.library import standard
from torchyard.apiserver.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, A, list_of
from torchyard.apiserver.cel.values import compare, equal, traversal_cost

_COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def _is_sorted(budget: CostBudget, items: list[Any]) -> bool:
    budget.spend(traversal_cost(items))
    return all(compare(left, right) <= 0 for left, right in itertools.pairwise(items))


def _sum(budget: CostBudget, items: list[Any]) -> Any:
    budget.spend(len(items))
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        total = standard.add(budget, total, item)
    return total


def _extreme(name: str, sign: int) -> Any:
    def run(budget: CostBudget, items: list[Any]) -> Any:
        budget.spend(traversal_cost(items))
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        extreme = items[0]
        for item in items[1:]:
            if compare(item, extreme) * sign > 0:
                extreme = item
        return extreme

    return run


def _position(*, last: bool) -> Any:
    def run(budget: CostBudget, items: list[Any], item: Any) -> int:
        budget.spend(traversal_cost(items))
        positions = range(len(items) - 1, -1, -1) if last else range(len(items))
        return next((index for index in positions if equal(items[index], item)), -1)

    return run


FUNCTIONS: tuple[FunctionDecl, ...] = (
    function(
        "isSorted", _is_sorted, *(member_overload(list_of(kind), result=BOOL) for kind in _COMPARABLE), metered=True
    ),
    function(
        "sum",
        _sum,
        *(member_overload(list_of(kind), result=kind) for kind in (INT, UINT, DOUBLE, DURATION)),
        metered=True,
    ),
    function(
        "min", _extreme("min", -1), *(member_overload(list_of(kind), result=kind) for kind in _COMPARABLE), metered=True
    ),
    function(
        "max", _extreme("max", 1), *(member_overload(list_of(kind), result=kind) for kind in _COMPARABLE), metered=True
    ),
    function("indexOf", _position(last=False), member_overload(list_of(A), A, result=INT), metered=True),
    function("lastIndexOf", _position(last=True), member_overload(list_of(A), A, result=INT), metered=True),
)
