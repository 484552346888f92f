"""Points 57 to 59: events."""

from __future__ import annotations

import pytest
from tests.conformance.objects import Object, Space
from tests.support.http import MERGE

REGARDING = {"kind": "Pod", "apiVersion": "v1", "name": "p"}


def core_event(name: str, space: Space, **more: object) -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": REGARDING | {"namespace": space.name},
        "reason": "Started",
        "message": "it started",
        "type": "Normal",
        "source": {"component": "agent", "host": "node-1"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    } | more


def new_event(name: str, space: Space, **more: object) -> Object:
    return {
        "metadata": {"name": name},
        "regarding": REGARDING | {"namespace": space.name},
        "reason": "Started",
        "note": "it started",
        "type": "Normal",
        "action": "Starting",
        "eventTime": "2026-01-01T00:00:00.123456Z",
        "reportingController": "torchyard.dev/agent",
        "reportingInstance": "agent-1",
    } | more


@pytest.mark.point(57)
def test_both_event_groups_serve_the_same_objects(space: Space) -> None:
    space.make("events", core_event("old", space))
    seen = space.get("newevents", "old")
    assert seen["apiVersion"] == "events.k8s.io/v1"
    assert seen["regarding"] == REGARDING | {"namespace": space.name}
    assert (seen["note"], seen["reason"], seen["type"]) == ("it started", "Started", "Normal")
    assert seen["deprecatedSource"] == {"component": "agent", "host": "node-1"}
    assert (seen["deprecatedCount"], seen["deprecatedFirstTimestamp"]) == (1, "2026-01-01T00:00:00Z")
    assert seen["eventTime"] is None
    space.make("newevents", new_event("new", space))
    core = space.get("events", "new")
    assert core["apiVersion"] == "v1"
    assert core["involvedObject"] == REGARDING | {"namespace": space.name}
    assert (core["message"], core["reportingComponent"]) == ("it started", "torchyard.dev/agent")
    assert core["eventTime"] == "2026-01-01T00:00:00.123456Z"
    assert (core["firstTimestamp"], core["lastTimestamp"], core["source"]) == (None, None, {})
    for resource in ("events", "newevents"):
        assert [e["metadata"]["name"] for e in space.api.get(space.path(resource)).json["items"]] == ["new", "old"]
    with space.api.watch(space.path("newevents")) as watch:
        kinds = {watch.next()["object"]["apiVersion"] for _ in range(2)}
    assert kinds == {"events.k8s.io/v1"}
    space.api.delete(space.path("newevents", "old"))
    assert space.gone("events", "old")


@pytest.mark.point(57)
def test_each_event_group_selects_by_its_own_fields(space: Space) -> None:
    """What one group has read of an event does not hide the fields of the other one."""
    space.make("newevents", new_event("new", space))
    for resource, field in (
        ("events", "reportingComponent"),
        ("newevents", "reportingController"),
        ("events", "source"),
        ("events", "involvedObject.name"),
        ("newevents", "regarding.name"),
    ):
        value = "p" if field.endswith(".name") else "torchyard.dev/agent"
        selected = space.api.get(space.path(resource), query={"fieldSelector": f"{field}={value}"})
        assert [event["metadata"]["name"] for event in selected.json["items"]] == ["new"], (resource, field)


@pytest.mark.point(58)
def test_a_repeated_event_is_counted_in_place(space: Space) -> None:
    space.make("events", core_event("e", space))
    patch = {"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"}
    again = space.api.patch(space.path("events", "e"), patch, MERGE)
    assert (again.status, again.json["count"], again.json["lastTimestamp"]) == (200, 2, "2026-01-01T00:00:09Z")
    assert again.json["firstTimestamp"] == "2026-01-01T00:00:00Z"
    space.make("newevents", new_event("n", space))
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}}
    again = space.api.patch(space.path("newevents", "n"), series, MERGE)
    assert (again.status, again.json["series"]) == (200, series["series"])
    assert space.get("events", "n")["series"] == series["series"]


@pytest.mark.point(59)
def test_new_events_need_their_time_and_reporter(space: Space) -> None:
    for field, missing in (
        ("eventTime", None),
        ("reportingController", ""),
        ("reportingInstance", ""),
        ("action", ""),
        ("reason", ""),
        ("type", "Odd"),
    ):
        refused = space.api.post(space.path("newevents"), new_event("e", space, **{field: missing}))
        assert (refused.status, refused.reason) == (422, "Invalid"), (field, refused)
        assert refused.causes[0]["field"].startswith(field), refused.causes
    foreign = core_event("e", space) | {"involvedObject": REGARDING | {"namespace": "elsewhere"}}
    refused = space.api.post(space.path("events"), foreign)
    assert (refused.status, refused.causes[0]["field"]) == (422, "involvedObject.namespace")
    loose = core_event("loose", space)
    del loose["reason"], loose["source"], loose["firstTimestamp"]
    assert space.api.post(space.path("events"), loose).status == 201
