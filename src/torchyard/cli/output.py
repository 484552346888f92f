"""The output formats that commands share: `-o table|wide|json|yaml|name` and `-q`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from torchyard.cli.options import say
from torchyard.cli.printable import mask_unprintable


class Output(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    name = "name"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only names, as -o name does.")]

Record = dict[str, Any]


def for_programs(output: Output) -> bool:
    """Whether a command prints records, and nothing for people, on standard output."""
    return output not in (Output.table, Output.wide)


def show_result(record: Record, output: Output, text: str, *, quiet: bool = False) -> None:
    """Print what a command has done: the text for people, if there is one, and the record for programs."""
    output = Output.name if quiet else output
    if for_programs(output):
        show_records([record], output, columns={}, empty="")
    elif text:
        say(text)


def show_records(records: Sequence[Record], output: Output, *, columns: dict[str, str], empty: str) -> None:
    """Print records: as JSON or YAML whole, as a table the fields that `columns` give a heading.

    The key `name` of a record is what `-o name` prints. `empty` replaces a table without rows.
    """
    match output:
        case Output.json:
            say(to_json(records))
        case Output.yaml:
            import yaml

            say(yaml.safe_dump(list(records), sort_keys=False).rstrip())
        case Output.name:
            for record in records:
                say(str(record["name"]))
        case _ if records:
            for line in table_lines(
                [list(columns.values()), *([_cell(row.get(key)) for key in columns] for row in records)]
            ):
                say(line)
        case _:
            say(empty)


def to_json(value: Any) -> str:
    """JSON as RFC 8259 defines it, which has no NaN and no infinity: they are the strings nan, inf and -inf."""
    return json.dumps(_without_constants(value), indent=2, allow_nan=False)


def _without_constants(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_constants(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_constants(item) for item in value]
    return value


def table_lines(rows: list[list[str]]) -> list[str]:
    """The rows as lines of equal columns. A line break in a cell is a space; other control characters are masked."""
    rows = [[mask_unprintable(" ".join(cell.splitlines())) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
