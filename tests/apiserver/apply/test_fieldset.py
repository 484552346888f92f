"""Field sets are sets of paths: every operation is checked against Python's own sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchyard.apiserver.apply import fieldset
from torchyard.apiserver.apply.fieldset import FieldPath, FieldSet

steps = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
paths = st.sets(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=8)


def made(some: set[FieldPath]) -> FieldSet:
    return fieldset.of_paths(*sorted(some))


def read(fields: FieldSet) -> set[FieldPath]:
    found = list(fieldset.members(fields))
    assert len(found) == len(set(found))
    _check_form(fields)
    return set(found)


def _check_form(fields: FieldSet) -> None:
    """Every dict is there for a member, and a member with nothing beneath it is empty."""
    for step, node in fields.items():
        assert step == "." or node == {} or any(inner != "." for inner in node)
        _check_form(node)


@given(paths)
def test_a_set_holds_the_paths_it_was_made_of(some: set[FieldPath]) -> None:
    assert read(made(some)) == some


@given(paths, paths)
def test_union_difference_and_intersection_are_those_of_sets(left: set[FieldPath], right: set[FieldPath]) -> None:
    assert read(fieldset.union(made(left), made(right))) == left | right
    assert read(fieldset.difference(made(left), made(right))) == left - right
    assert read(fieldset.intersection(made(left), made(right))) == left & right


@given(paths, paths)
def test_difference_below_takes_what_lies_beneath_too(left: set[FieldPath], right: set[FieldPath]) -> None:
    expected = {path for path in left if not any(path[: len(other)] == other for other in right)}
    assert read(fieldset.difference_below(made(left), made(right))) == expected


@given(paths, paths)
def test_no_operation_changes_its_arguments(left: set[FieldPath], right: set[FieldPath]) -> None:
    one, other = made(left), made(right)
    for operation in (fieldset.union, fieldset.difference, fieldset.intersection, fieldset.difference_below):
        operation(one, other)
    assert (read(one), read(other)) == (left, right)


def test_the_stored_form_is_the_set() -> None:
    fields: FieldSet = {"f:spec": {"f:replicas": {}, "f:ports": {'k:{"port":80}': {".": {}, "f:name": {}}}}}
    assert read(fields) == {
        ("f:spec", "f:replicas"),
        ("f:spec", "f:ports", 'k:{"port":80}'),
        ("f:spec", "f:ports", 'k:{"port":80}', "f:name"),
    }


def test_members_come_before_what_lies_beneath_and_in_order() -> None:
    fields = made({("f:b",), ("f:a", "f:x"), ("f:a",), ("f:c", "f:d")})
    found = list(fieldset.members(fields, order=str))
    assert found == [("f:a",), ("f:b",), ("f:a", "f:x"), ("f:c", "f:d")]
