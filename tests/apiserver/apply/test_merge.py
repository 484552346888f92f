"""Merging an applied object in, and taking fields out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.apiserver.apply.shapes import SPEC, step

from torchyard.api.objects import Object
from torchyard.apiserver.apply.fieldset import FieldSet
from torchyard.apiserver.apply.merge import merge_applied, remove_fields


def items(*names: str, **values: str) -> list[Object]:
    return [{"name": name, **({"value": values[name]} if name in values else {})} for name in names]


MERGED: dict[str, tuple[Object, Object, Object]] = {
    "leaves are replaced, the rest stays": ({"text": "a", "count": 1}, {"text": "b"}, {"text": "b", "count": 1}),
    "maps grow": ({"texts": {"a": "1"}}, {"texts": {"b": "2"}}, {"texts": {"a": "1", "b": "2"}}),
    "an empty map takes nothing away": ({"texts": {"a": "1"}}, {"texts": {}}, {"texts": {"a": "1"}}),
    "nor does a null": (
        {"texts": {"a": "1"}, "tags": ["x"]},
        {"texts": None, "tags": None},
        {"texts": {"a": "1"}, "tags": ["x"]},
    ),
    "a null replaces a leaf": ({"text": "a", "row": ["x"]}, {"text": None, "row": None}, {"text": None, "row": None}),
    "atomic maps and lists are replaced": (
        {"whole": {"a": "1"}, "row": ["a", "b"]},
        {"whole": {"b": "2"}, "row": ["c"]},
        {"whole": {"b": "2"}, "row": ["c"]},
    ),
    "sets grow": ({"tags": ["a", "b"]}, {"tags": ["c", "b"]}, {"tags": ["a", "c", "b"]}),
    "items merge by their keys": (
        {"items": items("a", "b", a="1", b="2")},
        {"items": items("b", b="9")},
        {"items": items("a", "b", a="1", b="9")},
    ),
    "new items follow those they follow in the applied list": (
        {"items": items("a", "b", "c")},
        {"items": items("a", "x", "c", "y")},
        {"items": items("a", "b", "x", "c", "y")},
    ),
    "shared items take the applied order": (
        {"items": items("a", "b", "c")},
        {"items": items("c", "a")},
        {"items": items("b", "c", "a")},
    ),
    "an item that is there twice is replaced as one": (
        {"items": [*items("a", a="1"), *items("a", a="2"), *items("b")]},
        {"items": items("a", a="9")},
        {"items": items("a", "b", a="9")},
    ),
    "free-form objects grow": ({"free": {"a": {"b": 1}}}, {"free": {"a": {"c": 2}}}, {"free": {"a": {"b": 1, "c": 2}}}),
    "free-form JSON of another kind replaces": ({"free": {"a": 1}}, {"free": [1]}, {"free": [1]}),
}


@pytest.mark.parametrize(("live", "applied", "result"), MERGED.values(), ids=MERGED)
def test_merge_applied_returns_the_expected_object(live: Object, applied: Object, result: Object) -> None:
    before = copy.deepcopy((live, applied))
    assert merge_applied(live, applied, SPEC) == result
    assert (live, applied) == before


WITHOUT: dict[str, tuple[Object, FieldSet, Any]] = {
    "a leaf": ({"text": "a", "count": 1}, {"f:text": {}}, {"count": 1}),
    "an entry": ({"texts": {"a": "1", "b": "2"}}, {"f:texts": {"f:a": {}}}, {"texts": {"b": "2"}}),
    "all entries, but not the map": ({"texts": {"a": "1"}}, {"f:texts": {"f:a": {}}}, {"texts": None}),
    "the map": ({"texts": {"a": "1"}, "text": "x"}, {"f:texts": {".": {}, "f:a": {}}}, {"text": "x"}),
    "an item": ({"items": items("a", "b")}, {"f:items": {step("a"): {}}}, {"items": items("b")}),
    "a field of an item": (
        {"items": items("a", a="1")},
        {"f:items": {step("a"): {"f:value": {}}}},
        {"items": items("a")},
    ),
    "a value": ({"tags": ["x", "y"]}, {"f:tags": {'v:"x"': {}}}, {"tags": ["y"]}),
    "what is not there": ({"text": "a"}, {"f:texts": {"f:a": {}}}, {"text": "a"}),
    "part of an atomic list": ({"row": ["a"]}, {"f:row": {'v:"a"': {}}}, {"row": None}),
    "part of an atomic map": ({"whole": {"a": "1"}}, {"f:whole": {"f:a": {}}}, {"whole": None}),
    "everything": ({"text": "a"}, {"f:text": {}}, None),
}


@pytest.mark.parametrize(("value", "fields", "rest"), WITHOUT.values(), ids=WITHOUT)
def test_remove_fields_returns_the_expected_object(value: Object, fields: FieldSet, rest: Any) -> None:
    before = copy.deepcopy(value)
    assert remove_fields(value, fields, SPEC) == rest
    assert value == before
