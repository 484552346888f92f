"""What a definition makes the server serve."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.crd import cases, torchyard_server

from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.crd.resource import resources_of
from torchyard.apiserver.crd.scale import read_path, write_path
from torchyard.apiserver.crd.schema.node import compile_schema
from torchyard.apiserver.crd.schema.validation import schema_errors


def test_each_served_version_is_a_resource() -> None:
    case = {
        "definition": {"spec": {"scope": "Cluster", "names": {"shortNames": ["w"], "categories": ["all"]}}},
        "versions": [
            {"name": "v1", "storage": True, "subresources": {"status": {}}},
            {"name": "v1beta1"},
            {"name": "v1alpha1", "served": False},
        ],
    }
    first, second = resources_of(torchyard_server.establish(cases.definition("widget", case)))
    assert (first.api_version, second.api_version) == ("example.com/v1", "example.com/v1beta1")
    assert (first.plural, first.singular, first.kind) == ("widgets", "widget", "Widget")
    assert (first.storage_version, second.storage_version) == ("v1", "v1")
    assert not first.namespaced
    assert (first.short_names, first.categories) == (("w",), ("all",))
    assert list(first.subresources) == ["status"]
    assert first.subresources["status"].gvk.kind == "Widget"
    assert not second.subresources
    assert not first.strategy.unconditional_update


def test_a_scale_subresource_has_its_paths() -> None:
    scale = {"specReplicasPath": ".spec.a.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}
    resource = torchyard_server.serve(
        torchyard_server.establish(cases.definition("widget", {"version": {"subresources": {"scale": scale}}}))
    )
    assert resource.subresources["scale"].gvk == ("autoscaling", "v1", "Scale")
    paths = resource.custom.scale
    assert (paths.spec, paths.status, paths.selector) == (".spec.a.n", ".status.n", ".status.s")
    obj: Object = {"spec": {"a": {"n": 3}}}
    assert read_path(obj, paths.spec) == 3
    assert read_path(obj, paths.status) is None
    write_path(obj, paths.status, 2)
    assert obj["status"] == {"n": 2}


def test_selectable_field_values_are_strings() -> None:
    case = {
        "spec": {"a": {"type": "string"}, "b": {"type": "boolean"}, "i": {"type": "integer"}},
        "version": {
            "selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.b"}, {"jsonPath": ".spec.i"}],
        },
    }
    strategy = torchyard_server.serve(torchyard_server.establish(cases.definition("widget", case))).strategy
    assert strategy.selectable({"spec": {"b": True, "i": 5}}) == {"spec.a": "", "spec.b": "true", "spec.i": "5"}


def test_a_finalizer_without_a_domain_causes_a_warning() -> None:
    strategy = torchyard_server.serve(torchyard_server.establish(cases.definition("widget", {}))).strategy
    assert strategy.warnings({"metadata": {"finalizers": ["a/b", "foregroundDeletion"]}}) == []
    (warning,) = strategy.warnings({"metadata": {"finalizers": ["mine"]}})
    assert warning.startswith('metadata.finalizers: "mine": prefer a domain-qualified finalizer name')


SHAPES: dict[str, Any] = {
    "o": {"type": "object", "properties": {"x": {"type": "string"}}, "x-kubernetes-map-type": "atomic"},
    "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "ios": {"x-kubernetes-int-or-string": True},
    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "e": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    "lm": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "default": "d"}}},
    },
}


@pytest.fixture(scope="module")
def shapes() -> Type:
    resource_type = torchyard_server.serve(
        torchyard_server.establish(cases.definition("widget", {"spec": SHAPES}))
    ).type
    assert resource_type is not None
    return resource_type.fields["spec"]


def test_a_custom_resource_has_a_type_tree(shapes: Type) -> None:
    fields = shapes.fields
    assert {name: field.shape for name, field in fields.items()} == {
        "o": "object",
        "m": "map",
        "any": "any",
        "ios": "int-or-string",
        "set": "list",
        "e": "object",
        "lm": "list",
    }
    assert fields["o"].atomic_map
    assert fields["set"].list_type == "set"
    assert (fields["lm"].list_type, fields["lm"].list_keys) == ("map", ("k",))
    items = fields["lm"].items
    assert items is not None
    assert items.fields["k"].default == "d"
    assert "labels" in fields["e"].fields["metadata"].fields
    assert fields["e"].preserve_unknown


def test_equal_parts_of_a_schema_are_compiled_once() -> None:
    twice = {"a": SHAPES["lm"], "b": {**SHAPES["lm"], "description": "the same, described"}}
    resource_type = torchyard_server.serve(torchyard_server.establish(cases.definition("widget", {"spec": twice}))).type
    assert resource_type is not None
    fields = resource_type.fields["spec"].fields
    assert fields["a"] is fields["b"]


@pytest.mark.parametrize(("before", "after"), [(1, True), ({"n": [1]}, {"n": [True]}), (0, False)])
def test_a_boolean_is_not_a_valid_number(before: Any, after: Any) -> None:
    number: Object = {"type": "integer"}
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": number}}}
    root = compile_schema(number if isinstance(before, int) else schema)
    assert schema_errors(before, root, old=before) == []
    assert schema_errors(after, root, old=before) != []
