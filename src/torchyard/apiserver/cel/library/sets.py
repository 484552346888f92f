"""Lists taken as sets."""

from __future__ import annotations

from typing import Any

from torchyard.apiserver.cel.budget import Budget
from torchyard.apiserver.cel.functions import Function, call, function
from torchyard.apiserver.cel.types import BOOL, A, list_of
from torchyard.apiserver.cel.values import hashable, weight


def _keys(budget: Budget, items: list[Any]) -> set[Any]:
    budget.spend(weight(items))
    return {hashable(item) for item in items}


_TWO = call(list_of(A), list_of(A), gives=BOOL)
FUNCTIONS: tuple[Function, ...] = (
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
