"""Points 31 to 36: watches, bookmarks, WatchList, history, Tables."""

from __future__ import annotations

import time
from itertools import count

import pytest
from tests.conformance.differences import expected
from tests.conformance.objects import Object, Space, config_map, pod
from tests.support.effort import FULL
from tests.support.http import Client, Watch
from tests.support.kubernetes import Server

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"}
PARTIAL_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}


def seen(watch: Watch, count: int) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in watch.take(count)]


def touch(space: Space, resource: str, name: str) -> None:
    """Change an object, so that a watch has a next event."""
    space.api.patch(space.path(resource, name), {"metadata": {"annotations": {"touched": str(next(_touched))}}})


_touched = count()


@pytest.mark.point(31)
def test_a_watch_is_a_stream_of_json_lines(space: Space) -> None:
    space.make("secrets", {"metadata": {"name": "a"}})
    with space.api.watch(space.path("secrets")) as watch:
        assert watch.status == 200
        assert watch.headers["Content-Type"] == "application/json"
        assert watch.headers["Transfer-Encoding"] == "chunked"
        event = watch.next()
        assert event.keys() == {"type", "object"}
        assert (event["type"], event["object"]["kind"], event["object"]["apiVersion"]) == ("ADDED", "Secret", "v1")
        space.api.patch(space.path("secrets", "a"), {"metadata": {"labels": {"x": "1"}}})
        space.api.delete(space.path("secrets", "a"))
        assert seen(watch, 2) == [("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.point(31)
def test_a_watch_starts_at_its_resource_version(space: Space) -> None:
    at = space.path("secrets")
    for name in ("a", "b"):
        space.make("secrets", {"metadata": {"name": name}})
    middle = space.get("secrets", "a")["metadata"]["resourceVersion"]
    for query in ({}, {"resourceVersion": "0"}, {"resourceVersion": ""}):
        with space.api.watch(at, query=query) as watch:
            assert sorted(seen(watch, 2)) == [("ADDED", "a"), ("ADDED", "b")]
            touch(space, "secrets", "b")
            assert seen(watch, 1) == [("MODIFIED", "b")]
    with space.api.watch(at, query={"resourceVersion": middle}) as watch:
        assert seen(watch, 4) == [("ADDED", "b"), *[("MODIFIED", "b")] * 3]
        touch(space, "secrets", "a")
        assert seen(watch, 1) == [("MODIFIED", "a")]


@pytest.mark.point(31)
def test_the_watch_parameter_accepts_every_spelling_of_true(space: Space) -> None:
    space.make("secrets", {"metadata": {"name": "a"}})
    for spelling in ("true", "True", "1", "t", "TRUE"):
        with space.api.watch(space.path("secrets"), query={"watch": spelling}) as watch:
            assert seen(watch, 1) == [("ADDED", "a")]
    for spelling in ("false", "0", "False"):
        listed = space.api.get(space.path("secrets"), query={"watch": spelling})
        assert listed.json["kind"] == "SecretList"


@pytest.mark.point(31)
def test_the_timeout_of_a_watch_is_honoured(space: Space) -> None:
    started = time.monotonic()
    with space.api.watch(space.path("secrets"), query={"timeoutSeconds": 1}) as watch:
        assert list(watch.until_end()) == []
    assert time.monotonic() - started >= 0.9


@pytest.mark.point(31)
def test_bookmarks_are_sent_on_request(space: Space) -> None:
    listed = space.api.get(space.path("secrets")).json["metadata"]["resourceVersion"]
    query = {"resourceVersion": listed, "timeoutSeconds": 4}
    with (
        space.api.watch(space.path("secrets"), query=query | {"allowWatchBookmarks": "true"}) as requested,
        space.api.watch(space.path("secrets"), query=query) as silent,
    ):
        # Something the watchers do not see moves the version on: only a bookmark can tell them.
        assert space.api.post("/api/v1/namespaces/default/secrets", {"metadata": {"generateName": "x-"}}).status == 201
        bookmarks = list(requested.until_end())
        assert list(silent.until_end()) == []
    assert bookmarks
    for bookmark in bookmarks:
        assert bookmark["type"] == "BOOKMARK"
        assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("Secret", "v1")
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) > int(listed)
        assert "name" not in bookmark["object"]["metadata"]


WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


@pytest.mark.point(31)
def test_a_watch_list_ends_its_initial_events_with_an_annotated_bookmark(space: Space) -> None:
    for name in ("a", "b"):
        space.make("secrets", {"metadata": {"name": name}})
    for more in ({}, {"resourceVersion": "0"}):
        with space.api.watch(space.path("secrets"), query=WATCH_LIST | more) as watch:
            assert sorted(seen(watch, 2)) == [("ADDED", "a"), ("ADDED", "b")]
            end = watch.next()
            assert end["type"] == "BOOKMARK"
            assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            version = int(end["object"]["metadata"]["resourceVersion"])
            assert version >= int(space.get("secrets", "b")["metadata"]["resourceVersion"])
            space.api.patch(space.path("secrets", "a"), {"metadata": {"labels": {"x": str(len(more))}}})
            assert seen(watch, 1) == [("MODIFIED", "a")]


@pytest.mark.point(31)
@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "1"},
        {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
        {"sendInitialEvents": "false"},
    ],
    ids=["no match", "exact", "match on a plain watch", "false without match"],
)
def test_wrong_combinations_of_watch_options_are_invalid(space: Space, query: dict[str, str]) -> None:
    with space.api.watch(space.path("secrets"), query=query) as watch:
        assert watch.refusal is not None
        assert (watch.refusal.status, watch.refusal.reason) == (422, "Invalid"), watch.refusal


@pytest.mark.point(31)
def test_a_selector_watch_translates_what_starts_and_stops_matching(space: Space) -> None:
    at = space.path("secrets")
    space.make("secrets", {"metadata": {"name": "a", "labels": {"in": "no"}}})
    since = space.api.get(at).json["metadata"]["resourceVersion"]
    with space.api.watch(at, query={"resourceVersion": since, "labelSelector": "in=yes"}) as watch:
        for labels in ({"in": "yes"}, {"in": "yes", "x": "1"}, {"in": "no"}, {"in": "no", "x": "2"}):
            changed = space.api.patch(space.path("secrets", "a"), {"metadata": {"labels": labels}}).json
            if labels == {"in": "no"}:
                remaining = changed["metadata"]["resourceVersion"]
        events = watch.take(3)
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert events[2]["object"]["metadata"]["resourceVersion"] == remaining
        assert events[2]["object"]["metadata"]["labels"]["in"] == "yes"
        space.make("secrets", {"metadata": {"name": "next", "labels": {"in": "yes"}}})
        assert seen(watch, 1) == [("ADDED", "next")]


@pytest.mark.point(32)
def test_a_resource_version_that_is_not_a_number_is_rejected(server: Server, space: Space) -> None:
    with space.api.watch(space.path("secrets"), query={"resourceVersion": "not-a-number"}) as watch:
        assert watch.refusal is not None
        assert watch.refusal.status == expected(server, "watch-from-no-number")


@pytest.mark.point(33)
def test_a_deleted_event_has_the_last_state_at_the_version_of_the_deletion(space: Space) -> None:
    created = space.make("configmaps", config_map("a", {"k": "last"}))
    since = created["metadata"]["resourceVersion"]
    with space.api.watch(
        space.path("configmaps"), query={"resourceVersion": since, "fieldSelector": "metadata.name=a"}
    ) as watch:
        space.api.delete(space.path("configmaps", "a"))
        event = watch.next()
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == {"k": "last"}
    assert event["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(since)


@pytest.mark.point(34)
def test_one_object_is_watched_by_its_name(space: Space) -> None:
    for name in ("a", "b"):
        space.make("configmaps", config_map(name))
    at = space.path("configmaps")
    with space.api.watch(at, query={"fieldSelector": "metadata.name=b"}) as watch:
        assert seen(watch, 1) == [("ADDED", "b")]
        for name in ("a", "b"):
            space.api.patch(space.path("configmaps", name), {"data": {"x": "1"}})
        assert seen(watch, 1) == [("MODIFIED", "b")]
        space.api.delete(space.path("configmaps", "a"))
        touch(space, "configmaps", "b")
        assert seen(watch, 1) == [("MODIFIED", "b")]
    assert space.api.get(f"{at}/b", query={"watch": "true"}).json["kind"] == "ConfigMap"
    old_path = f"/api/v1/watch/namespaces/{space.name}/configmaps/b"
    with space.api.watch(old_path, query={"watch": ""}) as watch:
        assert seen(watch, 1) == [("ADDED", "b")]


@pytest.mark.point(35)
@pytest.mark.timeout(900)
def test_an_idle_watch_stays_open(space: Space) -> None:
    # Ten minutes of silence only fit the full effort; some seconds without any byte must not end it either.
    silence = 600 if FULL else 3
    since = space.api.get(space.path("secrets")).json["metadata"]["resourceVersion"]
    with space.api.watch(space.path("secrets"), query={"resourceVersion": since}, timeout=2 * silence + 60) as watch:
        assert watch.quiet(silence)
        space.make("secrets", {"metadata": {"name": "late"}})
        assert seen(watch, 1) == [("ADDED", "late")]


def columns(table: Object) -> list[str]:
    return [column["name"] for column in table["columnDefinitions"]]


@pytest.mark.point(36)
def test_tables_in_list_get_and_watch(space: Space) -> None:
    space.make("pods", pod("p", labels={"l": "1"}))
    at = space.path("pods")
    listed = space.api.get(at, headers=TABLE)
    table = listed.json
    assert (listed.status, table["kind"], table["apiVersion"]) == (200, "Table", "meta.k8s.io/v1")
    assert listed.headers["Content-Type"] == "application/json"
    assert columns(table) == [
        *("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"),
    ]
    assert [c["priority"] for c in table["columnDefinitions"]] == [0] * 5 + [1] * 4
    (row,) = table["rows"]
    assert row["cells"][:4] == ["p", "0/1", "Pending", 0] or row["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>"] * 4
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["labels"] == {"l": "1"}
    assert "spec" not in row["object"]
    full = space.api.get(at, query={"includeObject": "Object"}, headers=TABLE).json["rows"][0]["object"]
    assert (full["kind"], "spec" in full) == ("Pod", True)
    bare = space.api.get(at, query={"includeObject": "None"}, headers=TABLE).json["rows"][0]
    assert bare["object"] is None
    target = space.api.get(f"{at}/p", headers=TABLE).json
    assert (target["kind"], len(target["rows"])) == ("Table", 1)
    with space.api.watch(at, headers=TABLE) as watch:
        event = watch.next()
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
        assert columns(event["object"])[0] == "Name"
        assert event["object"]["rows"][0]["cells"][0] == "p"
        space.api.patch(f"{at}/p", {"metadata": {"labels": {"l": "2"}}})
        event = watch.next()
        assert (event["type"], event["object"]["rows"][0]["cells"][0]) == ("MODIFIED", "p")
        assert event["object"]["columnDefinitions"] is None


@pytest.mark.point(36)
def test_partial_metadata_in_list_get_and_watch(space: Space) -> None:
    space.make("configmaps", config_map("a", labels={"l": "1"}))
    at = space.path("configmaps")
    listed = space.api.get(at, query={"labelSelector": "l"}, headers=PARTIAL_LIST).json
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["items"][0]["metadata"]["name"] == "a"
    assert "data" not in listed["items"][0]
    target = space.api.get(f"{at}/a", headers=PARTIAL).json
    assert (target["kind"], target["apiVersion"], "data" in target) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        False,
    )
    with space.api.watch(at, query={"labelSelector": "l"}, headers=PARTIAL) as watch:
        event = watch.next()
    assert (event["object"]["kind"], event["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


@pytest.mark.point(36)
def test_tables_of_other_kinds_have_their_columns(api: Client, space: Space) -> None:
    expected = {
        "/api/v1/namespaces": ["Name", "Status", "Age"],
        "/api/v1/nodes": [
            *("Name", "Status", "Roles", "Age", "Version"),
            *("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ],
        space.path("configmaps"): ["Name", "Data", "Age"],
        space.path("secrets"): ["Name", "Type", "Data", "Age"],
        space.path("services"): ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"],
        space.path("jobs"): ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"],
        space.path("persistentvolumeclaims"): [
            *("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass"),
            *("Age", "VolumeMode"),
        ],
        space.path("events"): [
            *("Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message"),
            *("First Seen", "Count", "Name"),
        ],
        space.path("deployments"): [
            *("Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"),
        ],
        space.path("statefulsets"): ["Name", "Ready", "Age", "Containers", "Images"],
        space.path("serviceaccounts"): ["Name", "Secrets", "Age"],
        space.path("leases"): ["Name", "Holder", "Age"],
    }
    for at, names in expected.items():
        assert columns(api.get(at, headers=TABLE).json) == names, at
