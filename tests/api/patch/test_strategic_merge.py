"""Strategic merge patch: lists that merge, directives, order, errors."""

from __future__ import annotations

import copy

import pytest

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.patch.strategic_merge import apply_strategic_merge_patch
from torchyard.api.schema.types import Type

TEXT = Type("string")
NAMED = Type(
    "object",
    name="test.Item",
    fields={
        "name": TEXT,
        "value": TEXT,
        "tags": Type("list", items=TEXT, patch_strategy=("merge",)),
        "more": Type("map", values=TEXT),
    },
)
KIND = Type(
    "object",
    name="test.Kind",
    fields={
        "text": TEXT,
        "texts": Type("map", values=TEXT),
        "inner": Type("object", name="test.Inner", fields={"a": TEXT, "b": TEXT, "deep": Type("map", values=TEXT)}),
        "swapped": Type("object", name="test.Inner", fields={"a": TEXT}, patch_strategy=("replace",)),
        "items": Type("list", items=NAMED, patch_strategy=("merge",), patch_merge_key="name"),
        "unkeyed": Type("list", items=NAMED, patch_strategy=("merge",)),
        "tags": Type("list", items=TEXT, patch_strategy=("merge",)),
        "whole": Type("list", items=NAMED),
        "maps": Type("map", values=Type("map", values=TEXT)),
    },
)


def names(*some: str, **values: str) -> list[Object]:
    return [{"name": name, **({"value": values[name]} if name in values else {})} for name in some]


TAKEN: dict[str, tuple[Object, Object, Object]] = {
    "scalars are replaced": ({"text": "a"}, {"text": "b"}, {"text": "b"}),
    "a null deletes": ({"text": "a", "texts": {"x": "1"}}, {"text": None, "texts": {"x": None}}, {"texts": {}}),
    "a null for nothing is nothing": ({}, {"text": None}, {}),
    "nulls inside something new are dropped": ({}, {"inner": {"a": None, "b": "1"}}, {"inner": {"b": "1"}}),
    "objects merge": ({"inner": {"a": "1"}}, {"inner": {"b": "2"}}, {"inner": {"a": "1", "b": "2"}}),
    "objects whose strategy is replace do not": (
        {"swapped": {"a": "1"}},
        {"swapped": {"b": "2"}},
        {"swapped": {"b": "2"}},
    ),
    "another type of value replaces": ({"inner": {"a": "1"}}, {"inner": "x"}, {"inner": "x"}),
    "unknown fields are taken as they are": ({}, {"odd": [{"a": 1}]}, {"odd": [{"a": 1}]}),
    "$patch: replace takes the patch alone": (
        {"inner": {"a": "1"}},
        {"inner": {"$patch": "replace", "b": "2"}},
        {"inner": {"b": "2"}},
    ),
    "$patch: delete empties an object": ({"inner": {"a": "1"}}, {"inner": {"$patch": "delete"}}, {"inner": {}}),
    "a directive for nothing is nothing": ({}, {"inner": {"$patch": "replace", "b": "2"}}, {}),
    "$retainKeys clears the others": (
        {"inner": {"a": "1", "b": "2"}},
        {"inner": {"$retainKeys": ["b"], "b": "3"}},
        {"inner": {"b": "3"}},
    ),
    "$retainKeys does not mind nulls": (
        {"inner": {"a": "1", "b": "2"}},
        {"inner": {"$retainKeys": ["b"], "a": None}},
        {"inner": {"b": "2"}},
    ),
    "plain lists are replaced": ({"whole": names("a", "b")}, {"whole": names("c")}, {"whole": names("c")}),
    "keyed lists merge by key": (
        {"items": names("a", "b", a="1", b="2")},
        {"items": [{"name": "b", "value": "9"}, {"name": "c"}]},
        {"items": names("a", "b", "c", a="1", b="9")},
    ),
    "a new item comes first if the patch says nothing else": (
        {"items": names("a", "b")},
        {"items": names("c")},
        {"items": names("c", "a", "b")},
    ),
    "items of the patch keep its order": (
        {"items": names("a", "b", "c")},
        {"items": names("c", "a")},
        {"items": names("b", "c", "a")},
    ),
    "a new list is taken, but for what carries directives": (
        {},
        {"items": [{"name": "a"}, {"name": "b", "$patch": "delete"}]},
        {"items": names("a")},
    ),
    "$patch: delete removes an item, and all of its name": (
        {"items": names("a", "b", "a")},
        {"items": [{"name": "a", "$patch": "delete"}]},
        {"items": names("b")},
    ),
    "$patch: replace in a list takes the patch's other items": (
        {"items": names("a", "b")},
        {"items": [{"$patch": "replace"}, {"name": "c"}]},
        {"items": names("c")},
    ),
    "lists inside items merge too": (
        {"items": [{"name": "a", "tags": ["x"], "more": {"k": "1"}}]},
        {"items": [{"name": "a", "tags": ["y"], "more": {"l": "2"}}]},
        {"items": [{"name": "a", "tags": ["y", "x"], "more": {"k": "1", "l": "2"}}]},
    ),
    "scalar lists merge as sets": ({"tags": ["x", "y"]}, {"tags": ["y", "z"]}, {"tags": ["x", "y", "z"]}),
    "an empty patch list changes nothing": ({"tags": ["x"]}, {"tags": []}, {"tags": ["x"]}),
    "two empty lists are one": ({"tags": []}, {"tags": []}, {"tags": []}),
    "$deleteFromPrimitiveList removes values": (
        {"tags": ["x", "y", "x"]},
        {"$deleteFromPrimitiveList/tags": ["x"]},
        {"tags": ["y"]},
    ),
    "$deleteFromPrimitiveList of nothing is nothing": ({}, {"$deleteFromPrimitiveList/tags": ["x"]}, {}),
    "$deleteFromPrimitiveList with no list is ignored": (
        {"tags": ["x"]},
        {"$deleteFromPrimitiveList/tags": "x"},
        {"tags": ["x"]},
    ),
    "$setElementOrder sorts what is there": (
        {"items": names("a", "b", "c")},
        {"$setElementOrder/items": names("c", "b", "a")},
        {"items": names("c", "b", "a")},
    ),
    "$setElementOrder sorts what it adds": (
        {"items": names("a", "b")},
        {"$setElementOrder/items": names("a", "c", "b"), "items": names("c", c="1")},
        {"items": names("a", "c", "b", c="1")},
    ),
    "items the order does not know keep their place": (
        {"items": names("a", "x", "b")},
        {"$setElementOrder/items": names("b", "a")},
        {"items": names("x", "b", "a")},
    ),
    "$setElementOrder goes with a new list": (
        {},
        {"$setElementOrder/items": names("b", "a"), "items": names("b", "a")},
        {"items": names("b", "a")},
    ),
    "$setElementOrder alone makes no list": ({}, {"$setElementOrder/items": names("b", "a")}, {}),
    "$setElementOrder goes with deletions": (
        {"items": names("a", "b", "c")},
        {"$setElementOrder/items": names("c", "b"), "items": [{"name": "a", "$patch": "delete"}]},
        {"items": names("c", "b")},
    ),
    "$setElementOrder sorts scalars": (
        {"tags": ["x", "y", "z"]},
        {"$setElementOrder/tags": ["z", "x"]},
        {"tags": ["y", "z", "x"]},
    ),
}


@pytest.mark.parametrize(("original", "patch", "result"), TAKEN.values(), ids=TAKEN)
def test_strategic_merge_patches_give_the_expected_object(original: Object, patch: Object, result: Object) -> None:
    before = copy.deepcopy((original, patch))
    assert apply_strategic_merge_patch(original, patch, KIND) == result
    assert (original, patch) == before


LISTED: Object = {
    "items": names("a"),
    "tags": ["x"],
    "inner": {"a": "1"},
    "unkeyed": names("a"),
    "maps": {"a": {"b": "c"}},
}
INVALID: dict[str, tuple[Object, str]] = {
    "an item without its key": (
        {"items": [{"value": "y"}]},
        "map: map[value:y] does not contain declared merge key: name",
    ),
    "a deletion without its key": (
        {"items": [{"$patch": "delete"}]},
        "map: map[$patch:delete] does not contain declared merge key: name",
    ),
    "an item of another type": ({"items": ["y"]}, "list element types are not identical: [[map[name:a]] [y]]"),
    "mixed scalars": ({"tags": ["y", 3, 1.5]}, "list element types are not identical: [[x] [y 3 1.5]]"),
    "a list item that merges": (
        {"items": [{"name": "a", "$patch": "merge"}]},
        "merging lists cannot yet be specified in the patch",
    ),
    "an unknown directive in a list": (
        {"items": [{"name": "a", "$patch": "zap"}]},
        "unknown patch type: zap in map: map[$patch:zap name:a]",
    ),
    "an unknown directive": ({"inner": {"$patch": "zap"}}, "unknown patch type: zap in map: map[$patch:zap]"),
    "objects without a merge key": (
        {"unkeyed": names("b")},
        "cannot merge lists without merge key for type struct",
    ),
    "retainKeys that are no list": ({"inner": {"$retainKeys": "x"}}, "invalid patch format of retainKeys"),
    "fields that retainKeys lacks": ({"inner": {"$retainKeys": ["b"], "a": "1"}}, "invalid patch format of retainKeys"),
    "an order that is no list": (
        {"$setElementOrder/items": "x"},
        "expected a []interface {}, but received a string",
    ),
    "an order for no list": (
        {"$setElementOrder/inner": []},
        "expected a []interface {}, but received a map[string]interface {}",
    ),
    "an order without a name": ({"$setElementOrder": []}, "invalid patch format of setElementOrder list"),
    "an order that lacks an item": (
        {"$setElementOrder/items": names("b"), "items": names("a")},
        "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
    ),
    "an order of something else": (
        {"$setElementOrder/items": [{"x": "b"}], "items": names("a")},
        "map: map[x:b] does not contain declared merge key: name",
    ),
    "an order of an unknown list": (
        {"$setElementOrder/nope": ["x"]},
        'unable to find api field in struct Kind for the json field "nope"',
    ),
    "an order of empty lists": (
        {"$setElementOrder/whole": [], "whole": []},
        "no elements in any of the given slices",
    ),
    "a deletion without a name": ({"$deleteFromPrimitiveList": ["x"]}, "invalid patch format of primitive list"),
    "an object among plain values": (
        {"maps": {"a": {"x": "y"}}},
        "merging an object in json but data type is not struct, instead is: map",
    ),
    "a key that is no scalar": (
        {"items": [{"name": {"x": 1}}]},
        "map: map[name:map[x:1]] has no usable value for merge key: name",
    ),
    "a list of lists": (
        {"tags": [["y"]], "$deleteFromPrimitiveList/tags": ["x"]},
        "list element types are not identical: [[x] [[y]]]",
    ),
}


@pytest.mark.parametrize(("patch", "message"), INVALID.values(), ids=INVALID)
def test_invalid_strategic_merge_patches_are_rejected(patch: Object, message: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        apply_strategic_merge_patch(LISTED, patch, KIND)
    assert (excinfo.value.status, excinfo.value.message) == (400, message)


def test_lists_of_lists_do_not_merge() -> None:
    with pytest.raises(StatusError) as excinfo:
        apply_strategic_merge_patch({"tags": [["x"]]}, {"tags": [["y"]]}, KIND)
    assert excinfo.value.status == 422
