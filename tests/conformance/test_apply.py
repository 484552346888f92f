"""Point 40: server-side apply, field owners and conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import Definitions, Object, Space, config_map, crd, custom, deployment, service
from tests.support.http import APPLY
from tests.support.kubernetes import Server


def owned(obj: Object, manager: str, operation: str = "Apply", sub: str = "") -> Any:
    """The fields a manager owns, or None."""
    for entry in obj["metadata"].get("managedFields", []):
        if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, sub):
            return entry["fieldsV1"]
    return None


def applied(name: str, data: dict[str, str], **metadata: Any) -> Object:
    return config_map(name, data, **metadata)


@pytest.mark.point(40)
def test_apply_creates_and_records_the_field_owners(space: Space) -> None:
    at = space.path("configmaps", "a")
    created = space.api.apply(at, applied("a", {"x": "1"}, labels={"l": "1"}), "one")
    assert created.status == 201
    (entry,) = created.json["metadata"]["managedFields"]
    assert entry == {
        "manager": "one",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": entry["time"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}},
    }
    again = space.api.apply(at, applied("a", {"x": "1"}, labels={"l": "1"}), "one")
    assert (again.status, again.json) == (200, created.json)


@pytest.mark.point(40)
def test_fields_a_manager_no_longer_applies_are_removed_unless_another_owns_them(space: Space) -> None:
    at = space.path("configmaps", "a")
    space.api.apply(at, applied("a", {"x": "1", "y": "1", "shared": "1"}), "one")
    shared = space.api.apply(at, applied("a", {"shared": "1", "z": "1"}), "two")
    assert (shared.status, shared.json["data"]) == (200, {"x": "1", "y": "1", "shared": "1", "z": "1"})
    less = space.api.apply(at, applied("a", {"x": "1"}), "one")
    assert less.json["data"] == {"x": "1", "shared": "1", "z": "1"}
    assert owned(less.json, "one") == {"f:data": {"f:x": {}}}
    gone = space.api.apply(at, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, "one")
    assert gone.json["data"] == {"shared": "1", "z": "1"}
    assert owned(gone.json, "one") is None


@pytest.mark.point(40)
def test_a_conflict_names_the_fields_and_their_managers(space: Space) -> None:
    at = space.path("configmaps", "a")
    space.api.apply(at, applied("a", {"x": "1", "y": "1"}), "one")
    refused = space.api.apply(at, applied("a", {"x": "2"}), "two")
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert refused.causes == [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}]
    both = space.api.apply(at, applied("a", {"x": "2", "y": "2"}), "two")
    assert both.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'
    assert space.get("configmaps", "a")["data"] == {"x": "1", "y": "1"}
    forced = space.api.apply(at, applied("a", {"x": "2"}), "two", query={"force": "true"})
    assert (forced.status, forced.json["data"]) == (200, {"x": "2", "y": "1"})
    assert owned(forced.json, "one") == {"f:data": {"f:y": {}}}
    assert owned(forced.json, "two") == {"f:data": {"f:x": {}}}


@pytest.mark.point(40)
def test_an_update_takes_the_fields_it_changes(space: Space) -> None:
    at = space.path("configmaps", "a")
    space.api.apply(at, applied("a", {"x": "1", "y": "1"}), "one")
    patched = space.api.patch(at, {"data": {"x": "2"}}, query={"fieldManager": "editor"})
    assert owned(patched.json, "editor", "Update") == {"f:data": {"f:x": {}}}
    assert owned(patched.json, "one") == {"f:data": {"f:y": {}}}
    refused = space.api.apply(at, applied("a", {"x": "1", "y": "1"}), "one")
    assert refused.status == 409
    assert refused.message == 'Apply failed with 1 conflict: conflict with "editor" using v1: .data.x'
    assert refused.causes[0]["message"] == 'conflict with "editor" using v1'


@pytest.mark.point(40)
def test_items_of_keyed_lists_have_separate_owners(space: Space) -> None:
    at = space.path("services", "s")
    first = service("s", spec={"ports": [{"port": 80, "protocol": "TCP", "name": "a"}]})
    second = service("s", spec={"ports": [{"port": 90, "protocol": "TCP", "name": "b"}]})
    assert space.api.apply(at, first, "one").status == 201
    both = space.api.apply(at, second, "two")
    assert [(p["port"], p["name"]) for p in both.json["spec"]["ports"]] == [(80, "a"), (90, "b")]
    key = 'k:{"port":90,"protocol":"TCP"}'
    assert owned(both.json, "two") == {
        "f:spec": {"f:ports": {key: {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}}}
    }
    remaining = space.api.apply(at, service("s", spec={"ports": []}), "one")
    assert (remaining.status, [p["port"] for p in remaining.json["spec"]["ports"]]) == (200, [90])


@pytest.mark.point(40)
def test_status_and_main_resource_have_separate_owners(space: Space) -> None:
    space.make("deployments", deployment("d"))
    at = space.path("deployments", "d", "status")
    condition = {"type": "Available", "status": "True", "reason": "r", "message": "m"}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    answer = space.api.apply(at, body | {"status": {"replicas": 1, "conditions": [condition]}}, "controller")
    assert answer.status == 200, answer
    fields = owned(answer.json, "controller", "Apply", "status")
    assert fields["f:status"]["f:replicas"] == {}
    assert 'k:{"type":"Available"}' in fields["f:status"]["f:conditions"]


@pytest.mark.point(40)
def test_apply_needs_a_manager_a_kind_and_no_managed_fields(space: Space) -> None:
    at = space.path("configmaps", "a")
    no_manager = space.api.patch(at, config_map("a"), APPLY)
    assert (no_manager.status, no_manager.reason) == (422, "Invalid")
    assert no_manager.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )
    with_fields = config_map("a", managedFields=[{"manager": "x", "operation": "Apply", "apiVersion": "v1"}])
    refused = space.api.apply(at, with_fields)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "metadata.managedFields must be nil" in refused.message
    for body, message in (
        ({"metadata": {"name": "a"}}, "invalid object type: /, Kind="),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "invalid object type: /v1, Kind=Pod"),
        (config_map("b"), "the name of the object (b) does not match the name on the URL (a)"),
    ):
        refused = space.api.apply(at, body)
        assert (refused.status, refused.reason, refused.message) == (400, "BadRequest", message)
    long = space.api.apply(at, config_map("a"), "m" * 129)
    assert (long.status, long.causes[0]["field"]) == (422, "fieldManager")
    forced = space.api.patch(at, {"data": {}}, query={"force": "true"})
    assert (forced.status, forced.causes[0]["field"]) == (422, "force")
    assert space.gone("configmaps", "a")


@pytest.mark.point(40)
@pytest.mark.parametrize("body", ["a: [", "- 1", "7", ""], ids=["broken", "list", "number", "empty"])
def test_an_apply_body_that_is_not_an_object_is_rejected(space: Space, body: str) -> None:
    refused = space.api.apply(space.path("configmaps", "a"), body)
    assert (refused.status, refused.reason) == (400, "BadRequest"), refused


@pytest.mark.point(40)
def test_apply_reads_yaml(space: Space) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'yes'\n"
    assert space.api.apply(space.path("configmaps", "a"), text).json["data"] == {"x": "yes"}


@pytest.mark.point(40)
def test_unknown_and_duplicate_fields_are_rejected(server: Server, space: Space) -> None:
    twice = service("s", spec={"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]})
    for at, body, message in (
        (space.path("configmaps", "a"), config_map("a") | {"dada": {}}, ".dada: field not declared in schema"),
        (space.path("services", "s"), twice, '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'),
    ):
        refused = space.api.apply(at, body)
        assert refused.status == expected(server, "apply-of-an-untyped-object"), refused
        assert refused.message.endswith(message)


@pytest.mark.point(40)
def test_custom_resources_follow_the_list_types_of_their_schema(space: Space, crds: Definitions) -> None:
    item = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "v": {"type": "integer"}},
    }
    keyed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
    unique = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    whole = {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}
    plain = {"type": "array", "items": {"type": "string"}}
    spec = {"keyed": keyed, "unique": unique, "whole": whole, "plain": plain}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    crds.create(crd("gadgets", version={"schema": {"openAPIV3Schema": schema}}))
    at = space.path("gadgets", "g", group="test.torchyard.dev/v1")
    target = {"keyed": [{"id": "a", "v": 1}], "unique": ["x"]}
    two = {"keyed": [{"id": "b", "v": 2}], "unique": ["y"]}
    assert space.api.apply(at, custom("Gadget", "g", spec=target), "one").status == 201
    both = space.api.apply(at, custom("Gadget", "g", spec=two), "two")
    assert both.status == 200, both
    assert [k["id"] for k in both.json["spec"]["keyed"]] == ["a", "b"]
    assert both.json["spec"]["unique"] == ["x", "y"]
    assert owned(both.json, "two") == {
        "f:spec": {"f:keyed": {'k:{"id":"b"}': {".": {}, "f:id": {}, "f:v": {}}}, "f:unique": {'v:"y"': {}}}
    }
    atomic = {"whole": {"a": "1"}, "plain": ["1"]}
    taken = space.api.apply(at, custom("Gadget", "g", spec=atomic), "three")
    assert owned(taken.json, "three") == {"f:spec": {"f:plain": {}, "f:whole": {}}}
    other = {"whole": {"b": "1"}, "plain": ["2"]}
    refused = space.api.apply(at, custom("Gadget", "g", spec=other), "four")
    assert (refused.status, {c["field"] for c in refused.causes}) == (409, {".spec.plain", ".spec.whole"})
