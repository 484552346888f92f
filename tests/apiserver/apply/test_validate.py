"""The shape of applied objects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.apply.shapes import SPEC

from torchyard.apiserver.apply.validate import schema_mismatch

FITTING: list[dict[str, Any]] = [
    {"text": "a", "count": 1, "flag": True, "either": 3, "size": 1.5, "free": [{"x": None}], "row": ["a", "a"]},
    {"text": None, "count": 1.5, "either": "25%", "size": "1Gi", "tags": ["a", "b"], "texts": None, "items": None},
    {"open": {"more": {"x": 1}}, "nested": {"a": {"a": "x"}}, "inner": {}},
]


@pytest.mark.parametrize("value", FITTING)
def test_valid_objects_have_no_mismatch(value: dict[str, Any]) -> None:
    assert schema_mismatch(value, SPEC) is None


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"bogus": 1, "other": 2}, ".bogus: field not declared in schema"),
    ({"inner": {"c": 1}}, ".inner.c: field not declared in schema"),
    ({"text": 3}, ".text: expected string, got &value.valueUnstructured{Value:3}"),
    ({"count": "3"}, ".count: expected numeric (int or float), got string"),
    ({"count": True}, ".count: expected numeric (int or float), got bool"),
    ({"flag": "yes"}, ".flag: expected boolean, got &{yes}"),
    ({"either": {}}, ".either: expected any scalar, got &{map[]}"),
    ({"size": ["x"]}, ".size: expected any scalar, got &{[x]}"),
    ({"texts": ["a"]}, ".texts: expected map, got &{[a]}"),
    ({"inner": 3}, ".inner: expected map, got &{3}"),
    ({"row": {"a": 1}}, ".row: expected list, got &{map[a:1]}"),
    ({"row": ["a", 1]}, ".row[1]: expected string, got &value.valueUnstructured{Value:1}"),
    ({"tags": ["a", "a"]}, '.tags: duplicate entries for key [="a"]'),
    (
        {"items": [{"name": "a"}, {"name": "a", "side": "left"}]},
        '.items: duplicate entries for key [name="a",side="left"]',
    ),
    (
        {"items": [{"side": "a"}]},
        ".items: element 0: associative list with keys has an element that omits key field "
        '"name" (and doesn\'t have default value)',
    ),
    (
        {"items": [{"name": "a", "value": 1}]},
        '.items[name="a",side="left"].value: expected string, got &value.valueUnstructured{Value:1}',
    ),
    (
        {"text": 1, "flag": 1},
        "errors:\n  .text: expected string, got &value.valueUnstructured{Value:1}\n  .flag: expected boolean, got &{1}",
    ),
]


@pytest.mark.parametrize(("value", "error"), INVALID, ids=lambda value: str(value)[:50])
def test_mismatches_have_their_path(value: dict[str, Any], error: str) -> None:
    assert schema_mismatch(value, SPEC) == error


def test_a_value_that_is_not_an_object_has_no_path() -> None:
    assert schema_mismatch([], SPEC) == "expected map, got &{[]}"
