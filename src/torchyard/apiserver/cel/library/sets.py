"""Lists taken as sets."""

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
        lambda budget, one, other: _keys(budget, one) >= _keys(budget, other),
        _TWO,
        metered=True,
    ),
    function(
        "sets.equivalent",
        lambda budget, one, other: _keys(budget, one) == _keys(budget, other),
        _TWO,
        metered=True,
    ),
    function(
        "sets.intersects",
        lambda budget, one, other: not _keys(budget, one).isdisjoint(_keys(budget, other)),
        _TWO,
        metered=True,
    ),
)
