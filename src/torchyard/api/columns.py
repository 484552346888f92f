"""Table columns: what `kubectl get` prints of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A table column. Columns of priority 1 appear only with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one kind and the function that fills a row: `cells(object, now)`.

    `conditions(object)` returns the row's conditions, for the few kinds whose rows can be completed.
    """

    columns: tuple[Column, ...]
    cells: Callable[[dict[str, Any], datetime], list[Cell]]
    conditions: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None
    # A last column that a table has only if one of its rows fills it: `optional_cell(object)` is not empty.
    optional: Column | None = None
    optional_cell: Callable[[dict[str, Any]], str] = lambda _obj: ""
