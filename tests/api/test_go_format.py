"""Values in messages, printed as Go prints them."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api import go_format

PRINTED: list[tuple[Any, str, str, str]] = [
    (None, "<nil>", "interface {}(nil)", "<nil>"),
    (True, "true", "true", "bool"),
    (3, "3", "3", "int64"),
    (3.0, "3", "3", "float64"),
    (1.5, "1.5", "1.5", "float64"),
    (1e21, "1e+21", "1e+21", "float64"),
    ('a"b', 'a"b', '"a\\"b"', "string"),
    ([1, "x"], "[1 x]", '[]interface {}{1, "x"}', "[]interface {}"),
    (
        {"b": [], "a": {"x": None}},
        "map[a:map[x:<nil>] b:[]]",
        'map[string]interface {}{"a":map[string]interface {}{"x":interface {}(nil)}, "b":[]interface {}{}}',
        "map[string]interface {}",
    ),
]


@pytest.mark.parametrize(("value", "plain", "sharp", "type"), PRINTED, ids=lambda value: str(value)[:30])
def test_every_kind_of_value_is_formatted_as_in_go(value: Any, plain: str, sharp: str, type: str) -> None:
    assert go_format.format_v(value) == plain
    assert go_format.format_sharp_v(value) == sharp
    assert go_format.format_type(value) == type


@pytest.mark.parametrize(
    ("value", "name"), [(True, "bool"), (1, "number"), (1.5, "number"), ("x", "string"), ([], "array"), ({}, "object")]
)
def test_json_kinds_have_their_go_names(value: Any, name: str) -> None:
    assert go_format.json_type(value) == name
