"""Who owns which field after creates, updates, patches and applies."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.apiserver.apply.shapes import KIND, step

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.endpoint import Endpoint
from torchyard.apiserver.apply.last_applied import ANNOTATION
from torchyard.apiserver.apply.managed_fields import apply, record_update

MAIN = Endpoint(KIND, "Thing", "t/v1", reset={"f:status": {}})
STATUS = Endpoint(KIND, "Thing", "t/v1", "status", reset={"f:spec": {}})
DAY = "2026-01-{:02}T00:00:00Z"


def thing(labels: dict[str, str] | None = None, status: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "x", **({"labels": labels} if labels is not None else {})}
    obj: Object = {"apiVersion": "t/v1", "kind": "Thing", "metadata": metadata, "spec": spec}
    return obj if status is None else {**obj, "status": status}


def created(obj: Object, manager: str = "creator", day: int = 1) -> Object:
    record_update(MAIN, None, obj, manager=manager, now=DAY.format(day))
    return obj


def updated(live: Object, new: Object, manager: str, day: int, endpoint: Endpoint = MAIN) -> Object:
    before = copy.deepcopy(live)
    record_update(endpoint, live, new, manager=manager, now=DAY.format(day))
    assert live == before
    return new


def applied(live: Object | None, config: Object, manager: str, day: int, **more: Any) -> Object:
    before = copy.deepcopy((live, config))
    endpoint = more.pop("endpoint", MAIN)
    result = apply(endpoint, live, config, manager=manager, now=DAY.format(day), **more)
    assert (live, config) == before
    return result


def owners(obj: Object) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def times(obj: Object) -> dict[str, str | None]:
    return {entry["manager"]: entry.get("time") for entry in obj["metadata"]["managedFields"]}


def test_a_creator_owns_all_but_server_fields_and_reset_fields() -> None:
    obj = created(thing({"a": "1"}, {"phase": "x"}, text="x", texts={"b": "2"}))
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "creator",
            "operation": "Update",
            "apiVersion": "t/v1",
            "time": DAY.format(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {".": {}, "f:text": {}, "f:texts": {".": {}, "f:b": {}}},
            },
        }
    ]


def test_an_empty_object_has_no_managed_fields() -> None:
    assert (
        "managedFields" not in created({"apiVersion": "t/v1", "kind": "Thing", "metadata": {"name": "x"}})["metadata"]
    )


def test_a_changed_field_moves_to_its_writer_and_only_that_entry_gets_a_new_time() -> None:
    live = created(thing(text="x", count=1))
    new = updated(live, thing(text="y", count=1), "editor", 2)
    assert owners(new) == {"creator": {"f:spec": {".": {}, "f:count": {}}}, "editor": {"f:spec": {"f:text": {}}}}
    assert times(new) == {"creator": DAY.format(1), "editor": DAY.format(2)}


def test_a_removed_field_has_no_owner_and_changes_no_time() -> None:
    live = created(thing(text="x", count=1))
    new = updated(live, thing(text="x"), "editor", 2)
    assert owners(new) == {"creator": {"f:spec": {".": {}, "f:text": {}}}}
    assert times(new) == {"creator": DAY.format(1)}


def test_a_manager_without_fields_loses_its_entry() -> None:
    live = updated(created(thing(text="x")), thing(text="y"), "second", 2)
    assert list(owners(updated(live, thing(text="z"), "third", 3))) == ["creator", "third"]


def test_an_update_that_changes_nothing_keeps_the_record() -> None:
    live = created(thing(text="x"))
    assert updated(live, copy.deepcopy(live), "editor", 2) == live


def test_a_manager_has_an_entry_for_each_subresource() -> None:
    live = created(thing(text="x"), "controller")
    new = updated(live, thing(status={"phase": "Up"}, text="x"), "controller", 2, STATUS)
    assert [entry.get("subresource") for entry in new["metadata"]["managedFields"]] == [None, "status"]
    assert new["metadata"]["managedFields"][1]["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_reset_fields_are_not_recorded() -> None:
    live = created(thing(text="x"))
    assert owners(updated(live, thing(status={"phase": "Up"}, text="x"), "main", 2)).keys() == {"creator"}
    assert owners(updated(live, thing(text="y"), "controller", 2, STATUS)).keys() == {"creator"}


def test_an_object_without_a_record_gets_none_by_updates() -> None:
    assert owners(updated(thing(text="x"), thing(text="y"), "editor", 2)) == {}


def test_a_client_that_sends_the_record_back_changes_nothing() -> None:
    live = created(thing(text="x"))
    new = {**thing(text="x"), "metadata": copy.deepcopy(live["metadata"])}
    assert updated(live, new, "editor", 2)["metadata"] == live["metadata"]


@pytest.mark.parametrize("wiped", [[], [{}]])
def test_a_client_can_wipe_the_record_but_not_through_a_subresource(wiped: list[Object]) -> None:
    live = created(thing(text="x"))

    def sent() -> Object:
        return {**thing(text="x"), "metadata": {"name": "x", "managedFields": wiped}}

    assert "managedFields" not in updated(live, sent(), "editor", 2)["metadata"]
    assert owners(updated(live, sent(), "editor", 2, STATUS)) == owners(live)


def test_an_object_with_unkeyed_items_keeps_its_record() -> None:
    live = created(thing(items=[{"name": "a"}]))
    assert owners(updated(live, thing(items=[{"side": "b"}]), "editor", 2)) == owners(live)
    assert owners(created(thing(items=[{"side": "b"}]))) == {}


def test_an_apply_creates_the_object_and_owns_the_applied_fields() -> None:
    obj = applied(None, thing({"a": "1"}, text="x", items=[{"name": "b", "value": "1"}]), "applier", 1)
    assert obj["spec"] == {"text": "x", "items": [{"name": "b", "value": "1"}]}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "applier",
            "operation": "Apply",
            "apiVersion": "t/v1",
            "time": DAY.format(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:text": {}, "f:items": {step("b"): {".": {}, "f:name": {}, "f:value": {}}}},
            },
        }
    ]


def test_appliers_can_own_fields_of_one_object() -> None:
    live = applied(None, thing({"a": "1"}, tags=["x"]), "first", 1)
    both = applied(live, thing({"b": "2"}, tags=["y"]), "second", 2)
    assert both["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert sorted(both["spec"]["tags"]) == ["x", "y"]
    assert owners(both).keys() == {"first", "second"}


def test_fields_no_longer_applied_are_removed_unless_others_own_them() -> None:
    live = applied(None, thing({"a": "1"}, text="x", tags=["p", "q"], inner={"a": "1"}), "first", 1)
    live = applied(live, thing(tags=["q"], inner={"a": "1"}), "second", 2)
    live = applied(live, thing(count=1), "first", 3)
    assert live["spec"] == {"tags": ["q"], "inner": {"a": "1"}, "count": 1}
    assert "labels" not in live["metadata"]


def test_an_updaters_field_stays_when_its_applier_drops_it() -> None:
    live = applied(None, thing(text="x", count=1), "applier", 1)
    live = updated(live, thing(text="y", count=1), "editor", 2)
    live = applied(live, thing(), "applier", 3)
    assert live["spec"] == {"text": "y"}


def test_fields_without_an_owner_stay_beside_applied_ones() -> None:
    live = applied(None, thing(texts={"a": "1", "c": "3"}), "applier", 1)
    live["spec"]["texts"]["b"] = "2"
    assert applied(live, thing(texts={"c": "3"}), "applier", 2)["spec"] == {"texts": {"b": "2", "c": "3"}}


def test_an_apply_without_changes_returns_the_live_object() -> None:
    live = applied(None, thing({"a": "1"}, text="x"), "applier", 1)
    assert applied(live, thing({"a": "1"}, text="x"), "applier", 2) == live


def test_sharing_a_field_changes_no_time() -> None:
    live = applied(None, thing(text="x"), "first", 1)
    both = applied(live, thing(text="x"), "second", 2)
    assert times(both) == {"first": DAY.format(1), "second": None}


def test_a_conflict_has_a_cause_for_each_field() -> None:
    live = created(thing({"a": "1"}, text="x", count=1))
    live = updated(live, {**copy.deepcopy(live), "status": {"phase": "Up"}}, "controller", 2, STATUS)
    live = applied(live, thing(tags=["t"], whole={"a": "1"}), "other", 3)
    with pytest.raises(StatusError) as excinfo:
        applied(live, thing({"a": "2"}, text="y", count=1, whole={}), "applier", 4)
    assert (excinfo.value.status, excinfo.value.reason) == (409, "Conflict")
    assert excinfo.value.message == (
        'Apply failed with 3 conflicts: conflicts with "creator" using t/v1:\n'
        "- .metadata.labels.a\n"
        "- .spec.text\n"
        'conflicts with "other":\n'
        "- .spec.whole"
    )
    assert (excinfo.value.details or {})["causes"][1:] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "creator" using t/v1', "field": ".spec.text"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "other"', "field": ".spec.whole"},
    ]
    with pytest.raises(StatusError) as excinfo:
        applied(live, thing(status={"phase": "Down"}), "applier", 4, endpoint=STATUS)
    assert excinfo.value.message == (
        'Apply failed with 1 conflict: conflict with "controller" with subresource "status" using t/v1: .status.phase'
    )


def test_force_takes_over_the_fields() -> None:
    live = created(thing(text="x", count=1))
    live = applied(live, thing(text="y"), "applier", 2, force=True)
    assert live["spec"] == {"text": "y", "count": 1}
    assert owners(live) == {"applier": {"f:spec": {"f:text": {}}}, "creator": {"f:spec": {".": {}, "f:count": {}}}}


def test_equal_values_do_not_conflict() -> None:
    live = created(thing(text="x", items=[{"name": "a", "value": "1"}]))
    both = applied(live, thing(text="x", items=[{"name": "a", "value": "1"}]), "applier", 2)
    assert owners(both).keys() == {"creator", "applier"}


def test_the_first_apply_starts_the_record() -> None:
    live = thing({"a": "1"}, text="x")
    obj = applied(live, thing(count=1), "applier", 2)
    assert owners(obj)["before-first-apply"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:text": {}},
    }


def test_an_apply_does_not_own_reset_fields() -> None:
    obj = applied(None, thing(status={"phase": "Up"}, text="x"), "applier", 1)
    assert owners(obj) == {"applier": {"f:spec": {"f:text": {}}}}


def test_an_applier_of_nothing_is_removed_from_the_record() -> None:
    live = applied(created(thing(count=1)), thing(text="x"), "applier", 2)
    nothing = {key: value for key, value in thing().items() if key != "spec"}
    assert owners(applied(live, nothing, "applier", 3)).keys() == {"creator"}


def test_an_object_without_owned_fields_has_no_record() -> None:
    live = applied(None, thing({"a": "1"}), "applier", 1)
    nothing = {key: value for key, value in thing().items() if key != "spec"}
    assert "managedFields" not in applied(live, nothing, "applier", 2)["metadata"]


INVALID: list[tuple[Object, str]] = [
    ({"kind": "Other"}, "invalid object type: t/v1, Kind=Other"),
    ({"apiVersion": "t/v2"}, "invalid object type: t/v2, Kind=Thing"),
    ({"apiVersion": "v1", "kind": 3}, "invalid object type: /v1, Kind="),
    ({"metadata": {"managedFields": []}}, "metadata.managedFields must be nil"),
    (
        {"metadata": {"name": "x", "namespace": "n"}, "spec": {"bogus": 1}},
        "failed to create typed patch object (n/x; t/v1, Kind=Thing): .spec.bogus: field not declared in schema",
    ),
    ({"metadata": 3}, "failed to create typed patch object (/; t/v1, Kind=Thing): .metadata: expected map, got &{3}"),
]


@pytest.mark.parametrize(("change", "message"), INVALID)
def test_invalid_applied_objects_are_rejected(change: Object, message: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        applied(None, {**thing(), **change}, "applier", 1)
    assert (excinfo.value.status, excinfo.value.message) == (400, message)


def test_a_live_object_with_unkeyed_items_cannot_be_applied_to() -> None:
    with pytest.raises(StatusError, match="failed to create typed live object"):
        applied(thing(items=[{"side": "b"}]), thing(items=[{"name": "a"}]), "applier", 1)


def test_a_deeply_nested_object_is_rejected() -> None:
    free: Any = 1
    for _ in range(2000):
        free = {"a": free}
    with pytest.raises(StatusError, match="exceeded max depth"):
        created(thing(free=free))
    with pytest.raises(StatusError, match="exceeded max depth"):
        apply(MAIN, None, thing(free=free), manager="x", now=DAY.format(1))


def with_last_applied(obj: Object, last: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {ANNOTATION: json.dumps(last)}}}


def test_kubectl_takes_over_its_client_side_fields() -> None:
    live = created(with_last_applied(thing(text="x", count=1), thing(text="x")), "kubectl-client-side-apply")
    with pytest.raises(StatusError):
        applied(live, thing(text="y"), "other", 2)
    with pytest.raises(StatusError, match=r"1 conflict: .*: \.spec\.count"):
        applied(live, thing(text="y", count=2), "kubectl", 2)
    obj = applied(live, thing(text="y"), "kubectl", 2)
    assert obj["spec"] == {"text": "y", "count": 1}
    assert json.loads(obj["metadata"]["annotations"][ANNOTATION]) == thing(text="y")


@pytest.mark.parametrize("last", [{"apiVersion": "t/v0"}, [], {"apiVersion": "t/v1", "spec": 3}, "x"])
def test_an_invalid_last_applied_configuration_does_not_avoid_conflicts(last: Any) -> None:
    live = created(with_last_applied(thing(text="x"), last))
    with pytest.raises(StatusError):
        applied(live, thing(text="y"), "kubectl", 2)


def test_a_too_long_last_applied_configuration_is_removed() -> None:
    live = created(with_last_applied(thing(text="x"), thing()))
    obj = applied(live, thing(text="y" * 300_000), "kubectl", 2, force=True)
    assert ANNOTATION not in obj["metadata"]["annotations"]


def test_zero_values_have_no_owner_until_they_are_set() -> None:
    kind = Type(
        "object", fields={**KIND.fields, "spec": Type("object", fields=KIND.fields["spec"].fields, zero="always")}
    )
    obj = thing(text="x")
    record_update(Endpoint(kind, "Thing", "t/v1"), None, obj, manager="m", now=DAY.format(1))
    assert owners(obj) == {"m": {"f:spec": {"f:text": {}}}}
