"""Set operations on lists."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.cost_budget import CostBudget
from torchyard.apiserver.cel.functions import FunctionDecl, function, overload
from torchyard.apiserver.cel.types import BOOL, A, list_of
from torchyard.apiserver.cel.values import hashable, traversal_cost


def _keys(budget: CostBudget, items: list[Any]) -> set[Any]:
    budget.spend(traversal_cost(items))
    return {hashable(item) for item in items}


_TWO = overload(list_of(A), list_of(A), result=BOOL)
FUNCTIONS: tuple[FunctionDecl, ...] = (
    function(
        "sets.contains",
        lambda budget, left, right: _keys(budget, left) >= _keys(budget, right),
        _TWO,
        metered=True,
    ),
    function(
        "sets.equivalent",
        lambda budget, left, right: _keys(budget, left) == _keys(budget, right),
        _TWO,
        metered=True,
    ),
    function(
        "sets.intersects",
        lambda budget, left, right: not _keys(budget, left).isdisjoint(_keys(budget, right)),
        _TWO,
        metered=True,
    ),
)
