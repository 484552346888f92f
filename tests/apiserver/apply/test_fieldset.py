"""Field sets are sets of paths: every operation is checked against Python's own sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchyard.apiserver.apply import fieldset
from torchyard.apiserver.apply.fieldset import FieldPath, FieldSet

steps = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
paths = st.sets(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=8)


def set_of(some: set[FieldPath]) -> FieldSet:
    return fieldset.of_paths(*sorted(some))


def read(fields: FieldSet) -> set[FieldPath]:
    paths = list(fieldset.members(fields))
    assert len(paths) == len(set(paths))
    _check_form(fields)
    return set(paths)


def _check_form(fields: FieldSet) -> None:
    """Every dict belongs to a member, and a member without members below it is empty."""
    for step, node in fields.items():
        assert step == "." or node == {} or any(inner != "." for inner in node)
        _check_form(node)


@given(paths)
def test_a_field_set_has_the_paths_it_was_built_from(some: set[FieldPath]) -> None:
    assert read(set_of(some)) == some


@given(paths, paths)
def test_union_difference_and_intersection_match_python_sets(left: set[FieldPath], right: set[FieldPath]) -> None:
    assert read(fieldset.union(set_of(left), set_of(right))) == left | right
    assert read(fieldset.difference(set_of(left), set_of(right))) == left - right
    assert read(fieldset.intersection(set_of(left), set_of(right))) == left & right


@given(paths, paths)
def test_difference_below_also_removes_nested_members(left: set[FieldPath], right: set[FieldPath]) -> None:
    expected = {path for path in left if not any(path[: len(other)] == other for other in right)}
    assert read(fieldset.difference_below(set_of(left), set_of(right))) == expected


@given(paths, paths)
def test_set_operations_do_not_change_their_arguments(left: set[FieldPath], right: set[FieldPath]) -> None:
    left_set, right_set = set_of(left), set_of(right)
    for operation in (fieldset.union, fieldset.difference, fieldset.intersection, fieldset.difference_below):
        operation(left_set, right_set)
    assert (read(left_set), read(right_set)) == (left, right)


def test_the_stored_form_is_the_set() -> None:
    fields: FieldSet = {"f:spec": {"f:replicas": {}, "f:ports": {'k:{"port":80}': {".": {}, "f:name": {}}}}}
    assert read(fields) == {
        ("f:spec", "f:replicas"),
        ("f:spec", "f:ports", 'k:{"port":80}'),
        ("f:spec", "f:ports", 'k:{"port":80}', "f:name"),
    }


def test_members_are_listed_before_nested_ones_and_in_order() -> None:
    fields = set_of({("f:b",), ("f:a", "f:x"), ("f:a",), ("f:c", "f:d")})
    paths = list(fieldset.members(fields, order=str))
    assert paths == [("f:a",), ("f:b",), ("f:a", "f:x"), ("f:c", "f:d")]
