"""Points 8 to 15: resource versions, optimistic concurrency, generation, fields that clients cannot change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conformance.objects import (
    Definitions,
    Object,
    Space,
    claim,
    config_map,
    crd,
    custom,
    deployment,
    job,
    lease,
    pod,
    service,
)
from tests.support.http import JSON_PATCH, MERGE, Client

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


@pytest.mark.point(8)
def test_one_counter_grows_over_all_kinds_and_lists_are_never_older_than_their_items(space: Space) -> None:
    first = space.make("configmaps", config_map("a"))
    second = space.make("services", service("s"))
    third = space.make("configmaps", config_map("b"))
    changed = space.api.patch(space.path("configmaps", "a"), {"data": {"a": "2"}}).json
    versions = [version(obj) for obj in (first, second, third, changed)]
    assert versions == sorted(set(versions))
    listed = space.api.get(space.path("configmaps")).json
    assert version(listed) >= max(version(item) for item in listed["items"])


@pytest.mark.point(8)
def test_a_watch_from_a_lists_version_loses_nothing(space: Space) -> None:
    space.make("secrets", {"metadata": {"name": "before"}})
    listed = space.api.get(space.path("secrets")).json
    for name in ("x", "y", "z"):
        space.make("secrets", {"metadata": {"name": name}})
    with space.api.watch(space.path("secrets"), query={"resourceVersion": listed["metadata"]["resourceVersion"]}) as w:
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in w.take(3)] == [
            ("ADDED", "x"),
            ("ADDED", "y"),
            ("ADDED", "z"),
        ]


@pytest.mark.point(9)
def test_an_update_from_a_stale_version_conflicts(space: Space) -> None:
    old = space.make("configmaps", config_map("a"))
    new = space.api.put(space.path("configmaps", "a"), old | {"data": {"a": "2"}})
    assert new.status == 200
    refused = space.api.put(space.path("configmaps", "a"), old | {"data": {"a": "3"}})
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert refused.json["details"] == {"name": "a", "kind": "configmaps"}
    assert space.get("configmaps", "a")["data"] == {"a": "2"}


@pytest.mark.point(9)
def test_an_update_of_another_uid_conflicts_and_of_a_missing_object_is_not_found(space: Space) -> None:
    old = space.make("configmaps", config_map("a"))
    old["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    refused = space.api.put(space.path("configmaps", "a"), old)
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in refused.message
    missing = space.api.put(space.path("configmaps", "nobody"), config_map("nobody"))
    assert (missing.status, missing.message) == (404, 'configmaps "nobody" not found')


@pytest.mark.point(10)
def test_an_update_without_a_version_is_unconditional_for_most_built_ins(space: Space) -> None:
    for resource, obj in (
        ("configmaps", config_map("a")),
        ("deployments", deployment("a")),
        ("jobs", job("a", spec={"suspend": True})),
    ):
        space.make(resource, obj)
        changed = obj | {"metadata": {"name": "a", "labels": {"new": "1"}}}
        if resource == "jobs":
            live = space.get(resource, "a")
            changed = live | {"metadata": {"name": "a", "labels": {"new": "1"}}}
        answer = space.api.put(space.path(resource, "a"), changed)
        assert answer.status == 200, answer
        assert answer.json["metadata"]["labels"] == {"new": "1"}


@pytest.mark.point(10)
def test_an_update_without_a_version_is_rejected_for_some_kinds(space: Space, crds: Definitions) -> None:
    crds.create(crd("gadgets"))
    gadgets = space.path("gadgets", group="test.torchyard.dev/v1")
    assert space.api.post(gadgets, custom("Gadget", "a")).status == 201
    space.make("leases", lease("a"))
    budget = {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}}
    space.make("poddisruptionbudgets", budget)
    for at, obj in (
        (f"{gadgets}/a", custom("Gadget", "a", spec={"x": 1})),
        (space.path("leases", "a"), lease("a", holderIdentity="me")),
        (space.path("poddisruptionbudgets", "a"), budget),
    ):
        refused = space.api.put(at, obj)
        assert (refused.status, refused.reason) == (422, "Invalid"), refused
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message
        assert refused.causes[0]["field"] == "metadata.resourceVersion"


@pytest.mark.point(11)
def test_a_version_inside_a_patch_is_a_precondition(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    space.api.patch(space.path("configmaps", "a"), {"data": {"a": "2"}})
    stale = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    refused = space.api.patch(space.path("configmaps", "a"), stale, MERGE)
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'


@pytest.mark.point(11)
def test_patches_without_a_version_never_conflict_with_each_other(space: Space) -> None:
    space.make("configmaps", config_map("a", {"start": "1"}))

    def add(number: int) -> int:
        return space.api.patch(space.path("configmaps", "a"), {"data": {f"k{number}": "1"}}).status

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(add, range(40))) == {200}
    assert len(space.get("configmaps", "a")["data"]) == 41


@pytest.mark.point(12)
def test_a_write_that_changes_nothing_keeps_the_version_and_emits_no_event(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    before = created["metadata"]["resourceVersion"]
    with space.api.watch(
        space.path("configmaps"), query={"resourceVersion": before, "fieldSelector": "metadata.name=a"}
    ) as watch:
        for answer in (
            space.api.put(space.path("configmaps", "a"), created),
            space.api.patch(space.path("configmaps", "a"), {"data": {"a": "1"}}),
            space.api.patch(space.path("configmaps", "a"), [], JSON_PATCH),
        ):
            assert (answer.status, answer.json["metadata"]["resourceVersion"]) == (200, before)
            assert answer.json == created
        changed = space.api.patch(space.path("configmaps", "a"), {"data": {"a": "2"}}).json
        assert watch.next() == {"type": "MODIFIED", "object": changed}


@pytest.mark.point(13)
def test_generation_grows_exactly_when_the_spec_changes(space: Space) -> None:
    created = space.make("deployments", deployment("d"))
    at = space.path("deployments", "d")
    steps: list[tuple[Object, int]] = [
        ({"metadata": {"labels": {"a": "b"}}}, 1),
        ({"spec": {"replicas": 2}}, 2),
        ({"spec": {"replicas": 2}}, 2),
        ({"metadata": {"generation": 99}}, 2),
        ({"spec": {"paused": True}}, 3),
    ]
    assert created["metadata"]["generation"] == 1
    for patch, expected in steps:
        assert space.api.patch(at, patch).json["metadata"]["generation"] == expected, patch
    status = {"status": {"observedGeneration": 3, "replicas": 2}}
    assert space.api.patch(f"{at}/status", status).json["metadata"]["generation"] == 3
    held = space.api.patch(at, {"metadata": {"finalizers": ["test.torchyard.dev/hold"]}})
    assert held.json["metadata"]["generation"] == 3
    assert space.api.delete(at).status == 200
    assert space.get("deployments", "d")["metadata"]["generation"] == 4
    assert space.api.patch(at, {"metadata": {"finalizers": None}}).status == 200


@pytest.mark.point(13)
def test_kinds_without_a_spec_have_no_generation(space: Space) -> None:
    assert "generation" not in space.make("configmaps", config_map("a"))["metadata"]
    assert "generation" not in space.make("services", service("s"))["metadata"]
    assert "generation" not in space.make("persistentvolumeclaims", claim("c"))["metadata"]


@pytest.mark.point(13)
def test_generation_of_custom_resources_grows_with_everything_but_metadata_and_status(
    space: Space, crds: Definitions
) -> None:
    crds.create(crd("gadgets", version={"subresources": {"status": {}}}))
    crds.create(crd("gizmos"))
    for plural, after_status in (("gadgets", 2), ("gizmos", 3)):
        at = space.path(plural, group="test.torchyard.dev/v1")
        kind = plural.removesuffix("s").capitalize()
        created = space.api.post(at, custom(kind, "a", spec={"x": 1}, extra=1))
        assert (created.status, created.json["metadata"]["generation"]) == (201, 1)
        patched = space.api.patch(f"{at}/a", {"metadata": {"labels": {"l": "1"}}})
        assert patched.json["metadata"]["generation"] == 1
        patched = space.api.patch(f"{at}/a", {"extra": 2})
        assert patched.json["metadata"]["generation"] == 2
        patched = space.api.patch(f"{at}/a", {"status": {"ready": True}})
        assert patched.json["metadata"]["generation"] == after_status


@pytest.mark.point(14)
def test_clients_cannot_change_identity_or_deletion_timestamps(space: Space) -> None:
    created = space.make("pods", pod("p"))
    at = space.path("pods", "p")
    for field, value in (
        ("uid", "00000000-0000-4000-8000-000000000000"),
        ("deletionTimestamp", "2001-01-01T00:00:00Z"),
        ("deletionGracePeriodSeconds", 5),
    ):
        refused = space.api.patch(at, {"metadata": {field: value}})
        assert (refused.status, refused.reason) == (422, "Invalid"), refused
        assert f"metadata.{field}: Invalid value" in refused.message
        assert refused.message.endswith("field is immutable")
    renamed = space.api.patch(at, {"metadata": {"name": "other"}})
    assert (renamed.status, renamed.message) == (
        400,
        "the name of the object (other) does not match the name on the URL (p)",
    )
    for ignored in ({"creationTimestamp": "2001-01-01T00:00:00Z"}, {"selfLink": "/x"}, {"generation": 7}):
        answer = space.api.patch(at, {"metadata": ignored})
        assert (answer.status, answer.json["metadata"]) == (200, created["metadata"])


@pytest.mark.point(15)
def test_delete_preconditions_must_hold(space: Space) -> None:
    created = space.make("configmaps", config_map("a"))
    at = space.path("configmaps", "a")
    uid, current = created["metadata"]["uid"], created["metadata"]["resourceVersion"]
    other = "00000000-0000-4000-8000-000000000000"
    refused = space.api.delete(at, {"preconditions": {"uid": other}})
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert f"the UID in the precondition ({other}) does not match the UID in record ({uid})" in refused.message
    refused = space.api.delete(at, {"preconditions": {"resourceVersion": "1"}})
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert (
        f"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({current})"
        in refused.message
    )
    assert space.api.delete(at, {"preconditions": {"uid": uid, "resourceVersion": current}}).status == 200
    assert space.gone("configmaps", "a")


@pytest.mark.point(15)
def test_delete_options_are_read_from_the_query_too(space: Space, api: Client) -> None:
    space.make("configmaps", config_map("a", finalizers=["test.torchyard.dev/hold"]))
    answer = api.delete(space.path("configmaps", "a"), query={"propagationPolicy": "Foreground"})
    assert answer.status == 200
    assert "foregroundDeletion" in answer.json["metadata"]["finalizers"]
    api.patch(space.path("configmaps", "a"), {"metadata": {"finalizers": None}})
