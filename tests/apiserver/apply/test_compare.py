"""Which fields differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.apply.shapes import SPEC, step

from torchyard.api.objects import Object
from torchyard.apiserver.apply.compare import Comparison, compare
from torchyard.apiserver.apply.fieldset import FieldSet
from torchyard.apiserver.apply.to_fieldset import set_fields

# name: old, new, added, modified, removed
CASES: dict[str, tuple[Object, Object, FieldSet, FieldSet, FieldSet]] = {
    "nothing": ({"text": "a", "row": [1]}, {"text": "a", "row": [1]}, {}, {}, {}),
    "a new leaf": ({}, {"text": "a"}, {"f:text": {}}, {}, {}),
    "another leaf": ({"text": "a"}, {"text": "b"}, {}, {"f:text": {}}, {}),
    "a lost leaf": ({"text": "a"}, {}, {}, {}, {"f:text": {}}),
    "a null for a leaf": ({"text": "a"}, {"text": None}, {}, {"f:text": {}}, {}),
    "another entry of a map": (
        {"texts": {"a": "1"}},
        {"texts": {"b": "1"}},
        {"f:texts": {"f:b": {}}},
        {},
        {"f:texts": {"f:a": {}}},
    ),
    "a lost map": ({"texts": {"a": "1"}}, {}, {}, {}, {"f:texts": {".": {}, "f:a": {}}}),
    "an emptied map": ({"texts": {"a": "1"}}, {"texts": {}}, {}, {}, {"f:texts": {"f:a": {}}}),
    "an empty map and none": ({"texts": {}}, {"texts": None}, {}, {"f:texts": {}}, {}),
    "another atomic map": ({"whole": {"a": "1"}}, {"whole": {"b": "1"}}, {}, {"f:whole": {}}, {}),
    "another atomic list": ({"row": ["a"]}, {"row": ["b"]}, {}, {"f:row": {}}, {}),
    "another value of a set": (
        {"tags": ["a", "b"]},
        {"tags": ["c", "a"]},
        {"f:tags": {'v:"c"': {}}},
        {},
        {"f:tags": {'v:"b"': {}}},
    ),
    "a set in another order": ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, {}, {}, {}),
    "an emptied set": ({"tags": ["a"]}, {"tags": []}, {}, {}, {"f:tags": {'v:"a"': {}}}),
    "an empty set and none": ({"tags": []}, {"tags": None}, {}, {"f:tags": {}}, {}),
    "a changed item": (
        {"items": [{"name": "a", "value": "1"}]},
        {"items": [{"name": "a", "value": "2"}]},
        {},
        {"f:items": {step("a"): {"f:value": {}}}},
        {},
    ),
    "another item": (
        {"items": [{"name": "a"}]},
        {"items": [{"name": "b"}]},
        {"f:items": {step("b"): {".": {}, "f:name": {}}}},
        {},
        {"f:items": {step("a"): {".": {}, "f:name": {}}}},
    ),
    "an item that comes twice": (
        {"items": [{"name": "a"}]},
        {"items": [{"name": "a"}, {"name": "a", "value": "2"}]},
        {"f:items": {step("a"): {}}},
        {},
        {"f:items": {step("a"): {".": {}, "f:name": {}}}},
    ),
    "an item that came twice": (
        {"items": [{"name": "a"}, {"name": "a", "value": "2"}]},
        {"items": [{"name": "a"}]},
        {"f:items": {step("a"): {".": {}, "f:name": {}}}},
        {},
        {"f:items": {step("a"): {}}},
    ),
    "another of two": (
        {"items": [{"name": "a"}, {"name": "a", "value": "2"}]},
        {"items": [{"name": "a"}, {"name": "a", "value": "3"}]},
        {},
        {"f:items": {step("a"): {}}},
        {},
    ),
    "two that went": (
        {"items": [{"name": "a"}, {"name": "a"}, {"name": "b"}]},
        {"items": [{"name": "b"}]},
        {},
        {},
        {"f:items": {step("a"): {}}},
    ),
    "free-form JSON of another kind": (
        {"free": {"a": 1}},
        {"free": [1]},
        {},
        {"f:free": {}},
        {"f:free": {"f:a": {}}},
    ),
    "free-form JSON that becomes an object": (
        {"free": 1},
        {"free": {"a": 1}},
        {"f:free": {"f:a": {}}},
        {"f:free": {}},
        {},
    ),
}


@pytest.mark.parametrize(("old", "new", "added", "modified", "removed"), CASES.values(), ids=CASES)
def test_compare_returns_added_modified_and_removed_fields(
    old: Object, new: Object, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    assert compare(old, new, SPEC) == Comparison(added, modified, removed)


def test_a_comparison_can_exclude_fields_with_all_below_them() -> None:
    change = compare({"texts": {"a": "1"}}, {"texts": {"b": "2"}, "text": "x"}, SPEC)
    assert change.without({"f:texts": {}}) == Comparison({"f:text": {}}, {}, {})
    assert change.without({}) is change.without({"f:row": {}}) is change


words = st.sampled_from("xy")
keyed: st.SearchStrategy[Object] = st.fixed_dictionaries({"name": words}, optional={"side": words, "value": words})
objects: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {},
    optional={
        "text": words,
        "texts": st.dictionaries(words, words),
        "whole": st.dictionaries(words, words),
        "tags": st.lists(words),
        "row": st.lists(words),
        "items": st.lists(keyed),
        "free": st.one_of(words, st.dictionaries(words, words)),
    },
)


@given(objects, objects)
def test_the_reverse_comparison_swaps_added_and_removed(old: Object, new: Object) -> None:
    forward, backward = compare(old, new, SPEC), compare(new, old, SPEC)
    assert (forward.added, forward.modified, forward.removed) == (backward.removed, backward.modified, backward.added)


@given(objects)
def test_created_fields_equal_a_comparison_with_the_zero_object(new: Object) -> None:
    assert compare({}, new, SPEC) == Comparison(set_fields(new, {}, SPEC), {}, {})
