"""Any CRD and object is accepted or rejected; a stored object can be stored again unchanged."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.apiserver.crd import cases, torchyard_server

from torchyard.api.objects import Object
from torchyard.api.schema.decode import DecodeError

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "b", "10%", "2020-01-01T00:00:00Z", "1h", "aGk=", "::1", "ÿ", "x" * 60]),
)
names = st.sampled_from(["a", "b", "l", "m", "o", "s", "x", "name", "k", "v", "metadata", "kind", "apiVersion", "spec"])
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)

RICH: Object = {
    "a": {"type": "string", "maxLength": 5, "default": "d"},
    "b": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    "k": {"type": "string", "nullable": True, "enum": ["a", "b"]},
    "v": {"type": "number", "minimum": 1, "multipleOf": 0.5, "x-kubernetes-validations": [{"rule": "self < 100"}]},
    "x": {"x-kubernetes-preserve-unknown-fields": True},
    "name": {"type": "string", "format": "date-time", "x-kubernetes-validations": [{"rule": "self.getFullYear() > 1"}]},
    "l": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 3, "items": {"type": "string", "maxLength": 9}},
    "m": {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}},
        "maxProperties": 2,
    },
    "o": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object",
            "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "oneOf": [{"required": ["v"]}, {"not": {"required": ["v"]}}],
            "x-kubernetes-validations": [{"rule": "!has(self.v) || !has(oldSelf.v) || self.v >= oldSelf.v"}],
        },
    },
    "s": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}


@pytest.fixture(scope="module")
def resource() -> Any:
    return torchyard_server.serve(torchyard_server.establish(cases.definition("rich", {"spec": RICH})))


def body(content: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Rich", "metadata": {"name": "x"}, "spec": content}


@given(json_values, json_values)
@SETTINGS
def test_any_object_is_stored_or_rejected(resource: Any, first: Any, second: Any) -> None:
    try:
        stored, _ = torchyard_server.store(resource, body(first), None)
        torchyard_server.store(resource, body(second), stored, "update")
    except torchyard_server.Rejected as rejection:
        assert rejection.verdict["code"] in (400, 422)


@given(json_values)
@SETTINGS
def test_storing_a_stored_object_again_does_not_change_it(resource: Any, content: Any) -> None:
    try:
        stored, _ = torchyard_server.store(resource, body(content), None)
    except torchyard_server.Rejected:
        return
    stored_again, warnings = torchyard_server.store(resource, copy.deepcopy(stored), stored, "update")
    assert stored_again == stored
    assert warnings == []


KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "additionalProperties", "required", "enum", "default", "nullable", "pattern"),
        *("format", "maximum", "minLength", "anyOf", "oneOf", "allOf", "not", "description", "$ref", "definitions"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"),
        "x-kubernetes-validations",
    ]
)
words = st.sampled_from(["object", "string", "array", "integer", "map", "set", "atomic", "a", "(", "null", "self == 1"])
schemas = st.recursive(
    st.one_of(words, st.booleans(), st.none(), st.integers(-5, 5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYWORDS, inner, max_size=5),
        st.dictionaries(names, inner, max_size=3),
        st.fixed_dictionaries({"rule": words}, optional={"message": words, "fieldPath": words}),
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)}),
    ),
    max_leaves=15,
)


@given(schemas)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schema_is_accepted_or_rejected(schema: Any) -> None:
    fields = schema if isinstance(schema, dict) else {"a": schema}
    for case in ({"spec": fields}, {"schema": fields or {"type": "object"}}):
        try:
            torchyard_server.serve(torchyard_server.establish(cases.definition("any", case)))
        except torchyard_server.Rejected as rejection:
            assert rejection.verdict["code"] == 422
        except DecodeError:
            pass  # the server returns 400 before validation
