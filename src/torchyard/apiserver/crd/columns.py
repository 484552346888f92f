"""The table columns of a custom resource: its name and the CRD's additional printer columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from torchyard.api.columns import Cell, Column, Columns
from torchyard.api.objects import Object
from torchyard.api.times import TimeError, human_duration, parse_rfc3339
from torchyard.apiserver.crd.jsonpath import JSONPath, PathError
from torchyard.apiserver.golang.values import go_number

CellFunction = Callable[[Object, datetime], Cell]

_NAME = Column("Name", "string", "name", "the object's name, unique within its namespace")
_AGE = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "when the object was created",
}


def printer_columns(definitions: list[Object] | None) -> Columns:
    """The columns of a version; the default is the age."""
    fills: list[CellFunction] = []
    columns: list[Column] = []
    for column_definition in definitions or [_AGE]:
        try:
            fills.append(_cell_function(column_definition))
        except PathError:
            # As upstream: any path that starts with a dot is accepted, and an invalid one ends the list of columns.
            break
        columns.append(_column(column_definition))

    def cells(obj: Object, now: datetime) -> list[Cell]:
        return [obj.get("metadata", {}).get("name", ""), *(fill(obj, now) for fill in fills)]

    return Columns((_NAME, *columns), cells)


def _column(definition: Object) -> Column:
    path = definition.get("jsonPath", "")
    return Column(
        definition.get("name", ""),
        definition.get("type", ""),
        definition.get("format") or "",
        definition.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        definition.get("priority") or 0,
    )


def _cell_function(definition: Object) -> CellFunction:
    path = JSONPath(definition.get("jsonPath", ""))
    kind = definition.get("type", "")

    def fill(obj: Object, now: datetime) -> Cell:
        values = path.find(obj)
        return _cell(kind, values[0], now) if values else None

    return fill


def _cell(kind: str, value: Any, now: datetime) -> Cell:
    if kind == "string":
        return _text(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        return _age(value, now)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, float):
        return go_number(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _age(value: Any, now: datetime) -> Cell:
    if not isinstance(value, str):
        return None
    try:
        return human_duration(now - parse_rfc3339(value))
    except TimeError:
        return "<invalid>"
