"""The quick checks of custom resources: never true for an invalid value, and true for common values."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard.api.objects import Object
from torchyard.api.queue.crd import definitions
from torchyard.apiserver.crd.schema.defaulting import default_value
from torchyard.apiserver.crd.schema.lists import duplicate_errors
from torchyard.apiserver.crd.schema.node import INT_OR_STRING, compile_schema
from torchyard.apiserver.crd.schema.prune import prune_value
from torchyard.apiserver.crd.schema.quick_check import normalized_check, valid_check
from torchyard.apiserver.crd.schema.validation import ABSENT, schema_errors

SETTINGS = settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

NAMES = ("a", "b", "c", "name")
TEXTS = ("", "a", "abc", "abcdef", "2020-01-01T00:00:00Z", "10%")
NUMBERS = (-1, 0, 1, 2, 3, 5, 2**63, 0.5, 2.0, -2.5, 1e300)
scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS))
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=6,
)


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=keywords)


limits = st.integers(0, 3)
text_rules = optional(
    maxLength=limits,
    minLength=limits,
    pattern=st.just("^a"),
    format=st.sampled_from(["date-time", "duration", "int32"]),
    enum=st.lists(st.sampled_from([*TEXTS, 1, True]), min_size=1, max_size=3),
)
number_rules = optional(
    minimum=limits,
    maximum=limits,
    exclusiveMaximum=st.booleans(),
    exclusiveMinimum=st.booleans(),
    multipleOf=st.sampled_from([0.5, 2]),
    enum=st.just([1, 2]),
)


def merged(*parts: Object) -> Object:
    return {name: value for part in parts for name, value in part.items()}


# what decides whether a value stays as it is; none of it makes one valid or wrong
ways = optional(
    **{
        "default": st.sampled_from(["a", 1, {"a": 1}, []]),
        "x-kubernetes-preserve-unknown-fields": st.booleans(),
        "x-kubernetes-embedded-resource": st.booleans(),
    }
)


def typed(types: tuple[str, ...], rules: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return st.builds(
        merged, st.sampled_from([{"type": name} for name in types]), rules, optional(nullable=st.booleans()), ways
    )


def lists_of(items: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    unique = st.sampled_from(
        [
            {},
            {"x-kubernetes-list-type": "set"},
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "name"]},
        ]
    )
    rules = optional(items=items, minItems=limits, maxItems=limits)
    return st.builds(merged, st.sampled_from([{"type": "array"}, {}]), unique, rules, ways)


def objects_of(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    rules = optional(
        properties=st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        additionalProperties=st.one_of(st.booleans(), inner),
        required=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        minProperties=st.integers(0, 2),
        maxProperties=st.integers(0, 4),
    )
    return st.builds(merged, st.sampled_from([{"type": "object"}, {}]), rules, ways)


def alternatives_of(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.builds(merged, inner, optional(anyOf=some, allOf=some, oneOf=some, **{"not": inner}))


leaves = st.one_of(
    typed(("string",), text_rules),
    typed(("integer", "number"), number_rules),
    typed(("boolean", "integer", "string", "object", "array"), st.just({})),
    st.builds(merged, text_rules, number_rules),
    st.just({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}),
    st.builds(merged, st.just({"x-kubernetes-int-or-string": True}), number_rules, text_rules),
)
schemas = st.recursive(
    leaves, lambda inner: st.one_of(lists_of(inner), objects_of(inner), alternatives_of(inner)), max_leaves=6
)


def likely(schema: Object) -> st.SearchStrategy[Any]:
    """Values of about the shape a schema asks for."""
    named = {name: likely(sub) for name, sub in (schema.get("properties") or {}).items()}
    if named:
        return st.one_of(st.fixed_dictionaries(named), st.fixed_dictionaries({}, optional=named), anything)
    if isinstance(schema.get("additionalProperties"), dict):
        inner = likely(schema["additionalProperties"])
        return st.one_of(st.dictionaries(st.sampled_from(NAMES), inner, max_size=3), anything)
    if isinstance(schema.get("items"), dict):
        return st.one_of(st.lists(likely(schema["items"]), max_size=3), anything)
    return scalars if schema.get("type") not in ("object", "array") else anything


@given(st.data())
@SETTINGS
def test_a_quickly_accepted_value_is_valid_for_any_old_value(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    value, old = data.draw(likely(schema)), data.draw(likely(schema))
    node = compile_schema(schema)
    if valid_check(node)(value):
        for before in (ABSENT, old, value):
            assert schema_errors(value, node, old=before) == []
        assert duplicate_errors(value, node) == []


@given(st.data())
@SETTINGS
def test_a_normalized_value_is_valid_and_unchanged_by_pruning_and_defaulting(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    value = data.draw(likely(schema))
    node = compile_schema(schema)
    if normalized_check(node)(value):
        pruned = prune_value(deepcopy(value), node)
        default_value(pruned, node)
        assert pruned == value
        assert str(pruned) == str(value)  # 1 and 1.0 are not the same here
        assert valid_check(node)(value)


STRING: Object = {"type": "string"}
KEYED: Object = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"type": "object", "required": ["name"], "properties": {"name": STRING, "n": {"type": "integer"}}},
    "maxItems": 2,
}
ACCEPTED: list[tuple[Object, Any]] = [
    (STRING, "x"),
    ({"type": "string", "maxLength": 3, "pattern": "^a", "enum": ["ab", 1]}, "ab"),
    ({"type": "string", "format": "date-time"}, "2020-01-01T00:00:00Z"),
    ({"type": "boolean"}, False),
    ({"type": "integer", "minimum": 0}, 0),
    ({"type": "number", "multipleOf": 0.5}, 1.5),
    ({"type": "number"}, 2**64 - 1),
    ({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}, 5),
    ({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING, "pattern": "^[0-9]+$"}, "5"),
    ({"x-kubernetes-preserve-unknown-fields": True}, {"any": [None, {"thing": 1.5}]}),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"any": [None, {"thing": 1.5}]}),
    ({"type": "object", "additionalProperties": STRING}, {"a": "b"}),
    (KEYED, []),
    (KEYED, [{"name": "a", "n": 1}, {"name": "b"}]),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": STRING}, ["a", "b"]),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "allOf": [{"maxProperties": 1}]}, {"b": 1}),
]


@pytest.mark.parametrize(("schema", "value"), ACCEPTED)
def test_common_values_are_accepted_quickly(schema: Object, value: Any) -> None:
    assert valid_check(compile_schema(schema))(value)


LEFT_TO_OTHERS: list[tuple[Object, Any]] = [
    (STRING, 1),
    (STRING, None),
    ({"type": "string", "enum": ["a"]}, "b"),
    ({"type": "string", "maxLength": 1}, "ab"),
    ({"type": "string", "format": "date-time"}, "2020-13-01T00:00:00Z"),
    ({"type": "boolean"}, 1),
    ({"type": "integer"}, True),
    ({"type": "integer"}, 2**63),
    ({"type": "integer", "minimum": 1}, 0),
    ({"type": "number"}, True),
    ({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}, 1.5),
    ({"type": "object", "additionalProperties": STRING}, {"a": 1}),
    ({"type": "object", "additionalProperties": False}, {"a": 1}),
    ({"type": "object", "minProperties": 1}, {}),
    (KEYED, [{"name": "a"}, {"name": "a"}]),
    (KEYED, [{"n": 1}]),
    (KEYED, [{"name": "a"}, {"name": "b"}, {"name": "c"}]),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": STRING}, ["a", "a"]),
    ({"type": "array", "items": STRING}, {}),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": 1}),
    ({"not": {"required": ["a"]}}, {}),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}),
]


@pytest.mark.parametrize(("schema", "value"), LEFT_TO_OTHERS)
def test_invalid_or_undecidable_values_are_not_accepted_quickly(schema: Object, value: Any) -> None:
    assert not valid_check(compile_schema(schema))(value)


NAMED: Object = {"type": "object", "properties": {"a": STRING}}
DEFAULTED: Object = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
KEPT: Object = {"x-kubernetes-preserve-unknown-fields": True}
UNSETTLED: list[tuple[Object, Any]] = [
    (NAMED, {"b": 1}),
    ({"type": "object", "properties": {"a": NAMED}}, {"a": {"a": "x", "b": 1}}),
    ({"type": "object", "additionalProperties": NAMED}, {"k": {"b": 1}}),
    ({"type": "array", "items": NAMED}, [{"a": "x"}, {"b": 1}]),
    (DEFAULTED, {}),
    ({"type": "array", "items": DEFAULTED}, [{"a": "x"}, {}]),
    ({"type": "object", "properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}),
    ({"type": "number"}, 2.0),
    ({"type": "object", "additionalProperties": True} | KEPT, {"k": {"b": 1}}),
    # an alternative names a field only to validate it
    ({"type": "object", "anyOf": [{"properties": {"b": STRING}}]}, {"b": "x"}),
]


@pytest.mark.parametrize(("schema", "value"), UNSETTLED)
def test_a_value_that_pruning_or_defaulting_changes_is_not_normalized(schema: Object, value: Any) -> None:
    assert not normalized_check(compile_schema(schema))(value)


SETTLED: list[tuple[Object, Any]] = [
    (NAMED, {}),
    (NAMED, {"a": "x"}),
    (DEFAULTED, {"a": "y"}),
    (NAMED | KEPT, {"b": {"c": [1.0, None]}}),
    ({"type": "object", "additionalProperties": STRING}, {"k": "v"}),
    ({"type": "number"}, 2.5),
    (KEYED, [{"name": "a", "n": 1}, {"name": "b"}]),
    (NAMED | {"anyOf": [{"required": ["a"]}]}, {"a": "x"}),
]


@pytest.mark.parametrize(("schema", "value"), SETTLED)
def test_a_complete_value_is_normalized(schema: Object, value: Any) -> None:
    assert normalized_check(compile_schema(schema))(value)


def test_the_status_of_an_admitted_workload_is_accepted_quickly() -> None:
    crd = next(definition for definition in definitions() if definition["spec"]["names"]["plural"] == "workloads")
    status = compile_schema(crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]).properties["status"]
    condition = {"type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "observedGeneration": 1}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assignment = {"name": "main", "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1", "memory": 2}, "count": 1}
    value = {"conditions": [condition], "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    assert valid_check(status)(value)
    assert normalized_check(status)(value)
    assert not valid_check(status)({**value, "conditions": [condition, condition]})
