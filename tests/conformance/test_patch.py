"""Points 37 to 39, 41 and 42: JSON patch, merge patch, strategic merge patch, dry run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import Definitions, Object, Space, config_map, crd, custom, deployment, pod, service
from tests.support.http import JSON_PATCH, MERGE, STRATEGIC
from tests.support.kubernetes import Server


@pytest.mark.point(37)
def test_json_patch_supports_every_operation(space: Space) -> None:
    space.make("configmaps", config_map("a", {"keep": "1", "change": "1", "drop": "1", "move": "1"}))
    operations: list[Object] = [
        {"op": "test", "path": "/data/keep", "value": "1"},
        {"op": "add", "path": "/data/new", "value": "2"},
        {"op": "replace", "path": "/data/change", "value": "2"},
        {"op": "remove", "path": "/data/drop"},
        {"op": "move", "from": "/data/move", "path": "/data/moved"},
        {"op": "copy", "from": "/data/keep", "path": "/data/copied"},
        {"op": "add", "path": "/metadata/annotations", "value": {"t.io/b": "1"}},
        {"op": "replace", "path": "/metadata/annotations/t.io~1b", "value": "2"},
    ]
    answer = space.api.patch(space.path("configmaps", "a"), operations, JSON_PATCH)
    assert answer.status == 200, answer
    assert answer.json["data"] == {"keep": "1", "new": "2", "change": "2", "moved": "1", "copied": "1"}
    assert answer.json["metadata"]["annotations"] == {"t.io/b": "2"}


@pytest.mark.point(37)
def test_json_patch_addresses_list_items_by_index(space: Space) -> None:
    space.make("pods", pod("p", spec={"tolerations": [{"key": "a", "operator": "Exists"}]}))
    add = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "z", "operator": "Exists"}}]
    answer = space.api.patch(space.path("pods", "p"), add, JSON_PATCH)
    assert answer.status == 200, answer
    assert [t["key"] for t in answer.json["spec"]["tolerations"]][-1] == "z"
    assert answer.json["spec"]["tolerations"][0]["key"] == "a"


BAD_JSON_PATCHES: list[tuple[str, Any, int, str]] = [
    ("a test that fails", [{"op": "test", "path": "/data/a", "value": "9"}], 422, "Invalid"),
    ("a test of the version", [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}], 422, "Invalid"),
    ("a parent that is not there", [{"op": "replace", "path": "/none/x", "value": "1"}], 422, "Invalid"),
    ("moving what is not there", [{"op": "move", "from": "/data/none", "path": "/data/b"}], 422, "Invalid"),
    ("no path", [{"op": "remove"}], 422, "Invalid"),
    ("removing what is not there", [{"op": "remove", "path": "/data/none"}], 422, "Invalid"),
    ("adding below what is not there", [{"op": "add", "path": "/x/y/z", "value": "1"}], 422, "Invalid"),
    ("an object", {"op": "remove", "path": "/data/a"}, 400, "BadRequest"),
    ("no JSON", b"[{", 400, "BadRequest"),
    ("an unknown operation", [{"op": "frob", "path": "/data/a"}], 422, "Invalid"),
    ("too many operations", [{"op": "test", "path": "/data/a", "value": "1"}] * 10001, 413, "RequestEntityTooLarge"),
]


@pytest.mark.point(37)
@pytest.mark.parametrize(
    ("patch", "status", "reason"),
    [case[1:] for case in BAD_JSON_PATCHES],
    ids=[case[0] for case in BAD_JSON_PATCHES],
)
def test_a_bad_json_patch_is_rejected_and_changes_nothing(space: Space, patch: Any, status: int, reason: str) -> None:
    created = space.make("configmaps", config_map("a"))
    refused = space.api.patch(space.path("configmaps", "a"), patch, JSON_PATCH)
    assert (refused.status, refused.reason) == (status, reason), refused
    assert space.get("configmaps", "a") == created


@pytest.mark.point(37)
def test_json_patch_is_as_lenient_as_the_library_of_the_real_server(space: Space) -> None:
    at = space.path("configmaps", "a")
    space.make("configmaps", config_map("a"))
    lenient: list[Object] = [
        {"op": "replace", "path": "/data/added", "value": "1"},
        {"op": "test", "path": "/data/none", "value": None},
    ]
    answer = space.api.patch(at, lenient, JSON_PATCH)
    assert (answer.status, answer.json["data"]) == (200, {"a": "1", "added": "1"})
    refused = space.api.patch(at, [{"op": "remove", "path": "/data/none"}], JSON_PATCH)
    assert refused.message == "the server rejected our request due to an error in our request"


@pytest.mark.point(37)
def test_one_bad_operation_rejects_the_whole_patch(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    patch = [{"op": "add", "path": "/data/b", "value": "1"}, {"op": "remove", "path": "/data/none"}]
    assert space.api.patch(space.path("configmaps", "a"), patch, JSON_PATCH).status == 422
    assert space.get("configmaps", "a") == created


@pytest.mark.point(38)
def test_merge_patch_null_deletes_and_lists_are_replaced(space: Space) -> None:
    space.make("configmaps", config_map("a", {"x": "1", "y": "2"}, labels={"l": "1"}))
    patch = {"data": {"x": None, "z": "3"}, "metadata": {"labels": None}}
    answer = space.api.patch(space.path("configmaps", "a"), patch, MERGE)
    assert answer.json["data"] == {"y": "2", "z": "3"}
    assert "labels" not in answer.json["metadata"]
    space.make("deployments", deployment("d"))
    containers = [{"name": "other", "image": "alpine"}]
    answer = space.api.patch(
        space.path("deployments", "d"), {"spec": {"template": {"spec": {"containers": containers}}}}, MERGE
    )
    assert [c["name"] for c in answer.json["spec"]["template"]["spec"]["containers"]] == ["other"]


@pytest.mark.point(38)
@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
@pytest.mark.parametrize("body", [b"[]", b"7", b'"x"', b"{", b""], ids=["list", "number", "string", "broken", "empty"])
def test_a_patch_that_is_not_an_object_is_a_bad_request(space: Space, kind: str, body: bytes) -> None:
    created = space.make("configmaps", config_map("a"))
    refused = space.api.patch(space.path("configmaps", "a"), body, kind)
    assert (refused.status, refused.reason) == (400, "BadRequest"), refused
    assert space.get("configmaps", "a") == created


@pytest.mark.point(38)
def test_a_patch_to_a_wrong_type_is_rejected(space: Space) -> None:
    space.make("deployments", deployment("d"))
    refused = space.api.patch(space.path("deployments", "d"), {"spec": {"replicas": "many"}}, MERGE)
    assert (refused.status, refused.reason, refused.causes[0]["field"]) == (422, "Invalid", "patch"), refused
    assert "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32" in refused.message
    refused = space.api.patch(
        space.path("deployments", "d"), {"spec": {"replcas": 1}}, MERGE, query={"fieldValidation": "Strict"}
    )
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.message.endswith('strict decoding error: unknown field "spec.replcas"')
    refused = space.api.patch(space.path("deployments", "d"), {"spec": {"replicas": -1}}, MERGE)
    assert (refused.status, refused.causes[0]["field"]) == (422, "spec.replicas")


@pytest.mark.point(38)
def test_a_patch_cannot_change_the_kind(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    at = space.path("configmaps", "a")
    for patch, kind, message in (
        ({"kind": 35}, MERGE, "json: cannot unmarshal number into Go struct field .kind of type string"),
        ({"kind": "Pod"}, MERGE, "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        ({"apiVersion": "a/b/c"}, MERGE, "unexpected GroupVersion string: a/b/c"),
        ({"kind": 35}, STRATEGIC, "cannot convert int64 to string"),
    ):
        refused = space.api.patch(at, patch, kind)
        assert (refused.status, refused.reason, refused.causes[0]["field"]) == (422, "Invalid", "patch"), refused
        assert refused.message.endswith(message)
    assert space.api.patch(at, {"kind": "Pod"}, STRATEGIC).json == created
    assert space.api.patch(at, {"kind": None}, MERGE).json == created


def containers(answer: Any) -> dict[str, str]:
    spec = answer.json["spec"]["template"]["spec"]
    return {item["name"]: item["image"] for item in spec["containers"]}


def template(**spec: Any) -> Object:
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.point(39)
def test_strategic_patch_merges_lists_by_their_key(space: Space) -> None:
    space.make("deployments", deployment("d"))
    at = space.path("deployments", "d")
    answer = space.api.patch(at, template(containers=[{"name": "main", "image": "alpine"}]), STRATEGIC)
    assert containers(answer) == {"main": "alpine"}
    answer = space.api.patch(at, template(containers=[{"name": "side", "image": "busybox"}]), STRATEGIC)
    assert containers(answer) == {"main": "alpine", "side": "busybox"}
    names = [c["name"] for c in answer.json["spec"]["template"]["spec"]["containers"]]
    order = {"$setElementOrder/containers": [{"name": n} for n in reversed(names)], "containers": []}
    answer = space.api.patch(at, template(**order), STRATEGIC)
    assert [c["name"] for c in answer.json["spec"]["template"]["spec"]["containers"]] == names[::-1]
    answer = space.api.patch(at, template(containers=[{"name": "side", "$patch": "delete"}]), STRATEGIC)
    assert containers(answer) == {"main": "alpine"}
    fresh = [{"$patch": "replace"}, {"name": "only", "image": "scratch"}]
    assert containers(space.api.patch(at, template(containers=fresh), STRATEGIC)) == {"only": "scratch"}
    env = [{"name": "only", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]
    space.api.patch(at, template(containers=env), STRATEGIC)
    env = [{"name": "only", "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]}]
    answer = space.api.patch(at, template(containers=env), STRATEGIC)
    shown = answer.json["spec"]["template"]["spec"]["containers"][0]["env"]
    assert sorted((e["name"], e["value"]) for e in shown) == [("B", "2"), ("C", "3")]


@pytest.mark.point(39)
def test_strategic_patch_of_primitive_lists_and_maps(space: Space) -> None:
    space.make("configmaps", config_map("a", {"x": "1"}, finalizers=["t.io/a", "t.io/b"]))
    at = space.path("configmaps", "a")
    answer = space.api.patch(at, {"metadata": {"finalizers": ["t.io/c"]}}, STRATEGIC)
    assert sorted(answer.json["metadata"]["finalizers"]) == ["t.io/a", "t.io/b", "t.io/c"]
    drop = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["t.io/b", "t.io/c"]}}
    assert space.api.patch(at, drop, STRATEGIC).json["metadata"]["finalizers"] == ["t.io/a"]
    answer = space.api.patch(at, {"data": {"$patch": "replace", "y": "2"}}, STRATEGIC)
    assert answer.json["data"] == {"y": "2"}
    answer = space.api.patch(at, {"data": {"y": None, "z": "3"}}, STRATEGIC)
    assert answer.json["data"] == {"z": "3"}
    space.api.patch(at, {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.point(39)
def test_retain_keys_clears_the_other_fields(space: Space) -> None:
    space.make("deployments", deployment("d", spec={"strategy": {"type": "RollingUpdate"}}))
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    answer = space.api.patch(space.path("deployments", "d"), patch, STRATEGIC)
    assert answer.status == 200, answer
    assert answer.json["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.point(39)
def test_ports_of_a_service_merge_by_port(space: Space) -> None:
    space.make("services", service("s", spec={"ports": [{"port": 80, "name": "a"}, {"port": 90, "name": "b"}]}))
    patch = {"spec": {"ports": [{"port": 80, "name": "a", "targetPort": 8080}]}}
    answer = space.api.patch(space.path("services", "s"), patch, STRATEGIC)
    assert [(p["port"], p["targetPort"]) for p in answer.json["spec"]["ports"]] == [(80, 8080), (90, 90)]


BAD_STRATEGIC: list[tuple[str, Object]] = [
    ("an item without its key", template(containers=[{"image": "x"}])),
    (
        "an order that misses an item",
        template(**{"$setElementOrder/containers": [{"name": "q"}], "containers": [{"name": "main"}]}),
    ),
]


@pytest.mark.point(39)
@pytest.mark.parametrize("patch", [item[1] for item in BAD_STRATEGIC], ids=[item[0] for item in BAD_STRATEGIC])
def test_a_bad_strategic_patch_is_rejected(server: Server, space: Space, patch: Object) -> None:
    created = space.make("deployments", deployment("d"))
    refused = space.api.patch(space.path("deployments", "d"), patch, STRATEGIC)
    assert refused.status == expected(server, "bad-strategic-patch"), refused
    assert space.get("deployments", "d") == created


@pytest.mark.point(39)
def test_custom_resources_have_no_strategic_patch(space: Space, crds: Definitions) -> None:
    crds.create(crd("gadgets"))
    at = space.path("gadgets", group="test.torchyard.dev/v1")
    space.api.post(at, custom("Gadget", "a"))
    refused = space.api.patch(f"{at}/a", {"spec": {"x": 1}}, STRATEGIC)
    assert (refused.status, refused.reason) == (415, "UnsupportedMediaType")
    assert (
        refused.message
        == (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, "
            "application/apply-patch+cbor"
        )
        or "application/merge-patch+json" in refused.message
    )


@pytest.mark.point(41)
def test_dry_run_does_everything_but_persist(space: Space) -> None:
    dry = {"dryRun": "All"}
    created = space.api.post(space.path("configmaps"), config_map("a"), query=dry)
    assert (created.status, bool(created.json["metadata"]["uid"])) == (201, True)
    assert "resourceVersion" not in created.json["metadata"]
    assert space.gone("configmaps", "a")
    named = space.api.post(space.path("configmaps"), config_map(generateName="g-"), query=dry)
    assert named.json["metadata"]["name"].startswith("g-")
    live = space.make("configmaps", config_map("a"))
    at = space.path("configmaps", "a")
    with space.api.watch(space.path("configmaps"), query={"resourceVersion": live["metadata"]["resourceVersion"]}) as w:
        changed = space.api.put(at, live | {"data": {"b": "2"}}, query=dry)
        assert (changed.status, changed.json["data"]) == (200, {"b": "2"})
        assert space.api.patch(at, {"data": {"c": "3"}}, query=dry).json["data"] == {"a": "1", "c": "3"}
        assert space.api.apply(at, config_map("a", {"d": "4"}), query=dry).json["data"] == {"a": "1", "d": "4"}
        assert space.api.delete(at, query=dry).status == 200
        assert space.get("configmaps", "a") == live
        changed = space.api.patch(at, {"data": {"a": "2"}}).json
        assert w.next() == {"type": "MODIFIED", "object": changed}
    invalid = space.api.post(space.path("pods"), pod("p", spec={"containers": []}), query=dry)
    assert (invalid.status, invalid.reason) == (422, "Invalid")
    refused = space.api.post(space.path("configmaps"), config_map("b"), query={"dryRun": "Some"})
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.causes[0]["field"] == "dryRun"


@pytest.mark.point(42)
@pytest.mark.parametrize("kind", [MERGE, STRATEGIC, JSON_PATCH])
def test_a_patch_of_a_missing_object_is_not_found(space: Space, kind: str) -> None:
    body: Any = [] if kind == JSON_PATCH else {"data": {"a": "2"}}
    missing = space.api.patch(space.path("configmaps", "nobody"), body, kind)
    assert (missing.status, missing.reason) == (404, "NotFound")
    assert missing.message == 'configmaps "nobody" not found'


@pytest.mark.point(42)
def test_only_apply_creates(space: Space) -> None:
    created = space.api.apply(space.path("configmaps", "new"), config_map("new"))
    assert (created.status, created.json["data"]) == (201, {"a": "1"})
