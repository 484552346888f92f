"""Printer columns show what the real server shows (its cells, taken from it)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.apiserver.crd.columns import printer_columns
from torchyard.apiserver.crd.jsonpath import JSONPath, PathError

NOW = datetime(2026, 11, 15, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "creationTimestamp": "2026-11-14T23:58:00Z"},
    "spec": {
        "s": "str",
        "a": ["p", "q"],
        "m": {"z": 1, "a.b": "dot"},
        "i": 5,
        "f": 1.5,
        "big": 1000000.5,
        "b": True,
        "n": None,
        "d": "2020-01-01T00:00:00Z",
        "fut": "2099-01-01T00:00:00Z",
        "c": [{"type": "Ready", "status": "True", "n": 1}, {"type": "Last", "status": "x", "n": 2}],
    },
}


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("string", ".spec.s", "str"),
        ("string", ".spec.a", '["p","q"]'),
        ("string", ".spec.a[*]", "p"),
        ("string", ".spec.m", '{"a.b":"dot","z":1}'),
        ("string", ".spec.i", "5"),
        ("string", ".spec.f", "1.5"),
        ("string", ".spec.big", "1.0000005e+06"),
        ("string", ".spec.b", "true"),
        ("string", ".spec.n", "<no value>"),
        ("string", ".spec.missing", None),
        ("integer", ".spec.i", 5),
        ("integer", ".spec.f", 1),
        ("integer", ".spec.s", None),
        ("number", ".spec.f", 1.5),
        ("number", ".spec.i", 5),
        ("boolean", ".spec.b", True),
        ("boolean", ".spec.s", None),
        ("date", ".spec.d", "6y320d"),
        ("date", ".spec.s", "<invalid>"),
        ("date", ".spec.fut", "<invalid>"),
        ("date", ".spec.i", None),
        ("string", ".spec.c[-1:].type", "Last"),
        ("string", '.spec.c[?(@.type=="Ready")].status', "True"),
        ("string", ".spec.c[?(@.type=='Ready')].status", "True"),
        ("string", ".spec.c[?(@.n>1)].type", "Last"),
        ("string", ".spec.c[?(@.n)].type", "Ready"),
        ("string", ".spec.a[1]", "q"),
        ("string", ".spec.a[-1]", "q"),
        ("string", ".spec.a[9]", None),
        ("string", ".spec['s']", "str"),
        ("string", ".spec.m['a.b']", None),
        ("string", r".spec.m.a\.b", "dot"),
        ("string", "..type", "Ready"),
        ("string", ".spec.c[*].type", "Ready"),
    ],
)
def test_a_cell_has_the_value_at_its_json_path(kind: str, path: str, cell: object) -> None:
    columns = printer_columns([{"name": "X", "type": kind, "jsonPath": path}])
    assert columns.cells(OBJECT, NOW) == ["a", cell]


def test_the_name_is_first_and_age_is_the_default_column() -> None:
    columns = printer_columns(None)
    assert [column.name for column in columns.columns] == ["Name", "Age"]
    assert columns.cells(OBJECT, NOW) == ["a", "2m"]


def test_a_column_without_description_describes_its_json_path() -> None:
    plain, described = printer_columns(
        [
            {"name": "X", "type": "string", "jsonPath": ".spec.s", "priority": 1},
            {"name": "Y", "type": "integer", "format": "int32", "jsonPath": ".spec.i", "description": "its size"},
        ]
    ).columns[1:]
    assert plain.description == "Custom resource definition column (in JSONPath format): .spec.s"
    assert plain.priority == 1
    assert described.definition() == {
        "name": "Y",
        "type": "integer",
        "format": "int32",
        "description": "its size",
        "priority": 0,
    }


def test_columns_end_before_an_invalid_json_path() -> None:
    columns = printer_columns(
        [
            {"name": "X", "type": "string", "jsonPath": ".spec.s"},
            {"name": "Y", "type": "string", "jsonPath": ".spec.c[?(@.x"},
            {"name": "Z", "type": "string", "jsonPath": ".spec.i"},
        ]
    )
    assert [column.name for column in columns.columns] == ["Name", "X"]
    assert columns.cells(OBJECT, NOW) == ["a", "str"]


@pytest.mark.parametrize(
    "path", ["a", ".a[", ".a[x]", ".a[1:2:0]", ".a[1:2:3:4]", ".a[?(x)]", ".a b", ".a[?(@.b=='x)]"]
)
def test_an_invalid_json_path_is_an_error(path: str) -> None:
    with pytest.raises(PathError):
        JSONPath(path)
