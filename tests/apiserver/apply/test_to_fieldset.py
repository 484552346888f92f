"""What applying or creating an object claims."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.apply.shapes import SPEC, step

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.fieldset import FieldSet
from torchyard.apiserver.apply.path_elements import UnkeyedItemError
from torchyard.apiserver.apply.to_fieldset import applied_fields, created_fields, set_fields, with_named_fields

# name: value, claimed by applying it, claimed by creating it
CASES: dict[str, tuple[dict[str, Any], FieldSet, FieldSet]] = {
    "a scalar is a leaf": ({"text": "x"}, {"f:text": {}}, {"f:text": {}}),
    "a null is a leaf": ({"text": None, "tags": None}, {"f:text": {}, "f:tags": {}}, {"f:text": {}, "f:tags": {}}),
    "entries of a map are claimed, the map only by who makes it": (
        {"texts": {"a": "1"}},
        {"f:texts": {"f:a": {}}},
        {"f:texts": {".": {}, "f:a": {}}},
    ),
    "an object in a map is claimed with what it holds": (
        {"nested": {"x": {"a": "1"}}},
        {"f:nested": {"f:x": {".": {}, "f:a": {}}}},
        {"f:nested": {".": {}, "f:x": {".": {}, "f:a": {}}}},
    ),
    "an empty map is a leaf": ({"texts": {}}, {"f:texts": {}}, {"f:texts": {}}),
    "an atomic map is a leaf": ({"whole": {"a": "1"}}, {"f:whole": {}}, {"f:whole": {}}),
    "an atomic list is a leaf": ({"row": ["a"]}, {"f:row": {}}, {"f:row": {}}),
    "an empty atomic list is a leaf": ({"row": []}, {"f:row": {}}, {"f:row": {}}),
    "a set's values are claimed": (
        {"tags": ["x"]},
        {"f:tags": {'v:"x"': {}}},
        {"f:tags": {".": {}, 'v:"x"': {}}},
    ),
    "an empty associative list has nothing to claim by applying it": ({"tags": []}, {}, {"f:tags": {}}),
    "objects around nothing are not claimed": (
        {"inner": {}, "tags": []},
        {"f:inner": {}},
        {"f:inner": {}, "f:tags": {}},
    ),
    "keyed items are claimed by their keys, defaults included": (
        {"items": [{"name": "a", "value": "1"}, {"name": "a", "side": "right"}]},
        {
            "f:items": {
                step("a"): {".": {}, "f:name": {}, "f:value": {}},
                step("a", "right"): {".": {}, "f:name": {}, "f:side": {}},
            }
        },
        {
            "f:items": {
                ".": {},
                step("a"): {".": {}, "f:name": {}, "f:value": {}},
                step("a", "right"): {".": {}, "f:name": {}, "f:side": {}},
            }
        },
    ),
    "items that share their keys are one leaf": (
        {"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
        {"f:items": {step("a"): {}}},
        {"f:items": {".": {}, step("a"): {}}},
    ),
    "declared objects are claimed only by who makes them": (
        {"inner": {"a": "1"}},
        {"f:inner": {"f:a": {}}},
        {"f:inner": {".": {}, "f:a": {}}},
    ),
    "free-form objects are claimed key by key, lists in them as a whole": (
        {"free": {"a": {"b": 1}, "l": [{"c": 1}]}},
        {"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}},
        {"f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}}},
    ),
    "unknown fields count as free-form": (
        {"open": {"known": "1", "more": {"x": 1}}},
        {"f:open": {"f:known": {}, "f:more": {".": {}, "f:x": {}}}},
        {"f:open": {".": {}, "f:known": {}, "f:more": {".": {}, "f:x": {}}}},
    ),
}


@pytest.mark.parametrize(("value", "applied", "created"), CASES.values(), ids=CASES)
def test_applied_fields_are_owned(value: dict[str, Any], applied: FieldSet, created: FieldSet) -> None:
    assert applied_fields(value, SPEC) == applied
    assert created_fields(value, SPEC) == {".": {}, **created}
    assert set_fields(value, {}, SPEC) == created


def test_zero_values_are_not_owned_by_the_creator() -> None:
    zero = {"text": "", "inner": {"a": ""}, "items": None, "texts": {}}
    value = {"text": "", "inner": {"a": "", "b": "1"}, "items": [{"name": "a"}], "texts": {"x": "1"}, "row": []}
    assert set_fields(value, zero, SPEC) == {
        "f:inner": {"f:b": {}},
        "f:items": {step("a"): {".": {}, "f:name": {}}},
        "f:texts": {"f:x": {}},
        "f:row": {},
    }


def test_an_item_without_keys_cannot_be_owned() -> None:
    with pytest.raises(UnkeyedItemError):
        applied_fields({"items": [{"value": "1"}]}, SPEC)


def test_declared_fields_with_members_below_become_members() -> None:
    fields = {
        "f:inner": {"f:a": {}},
        "f:texts": {"f:x": {}},
        "f:items": {step("a"): {"f:value": {}}},
        "f:free": {"f:a": {"f:b": {}}},
    }
    assert with_named_fields(fields, SPEC) == {
        "f:inner": {".": {}, "f:a": {}},
        "f:texts": {".": {}, "f:x": {}},
        "f:items": {".": {}, step("a"): {"f:value": {}}},
        "f:free": {".": {}, "f:a": {"f:b": {}}},
    }
    assert with_named_fields({"f:x": {"f:y": {}}}, Type("any")) == {"f:x": {"f:y": {}}}
