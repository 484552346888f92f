"""The columns of `kubectl get`: what a Table response shows of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column; priority 1 is shown with `-o wide` only."""

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

    `conditions(object)` are the row's own, for the few kinds whose rows can be done with.
    """

    columns: tuple[Column, ...]
    cells: Callable[[dict[str, Any], datetime], list[Cell]]
    conditions: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None
