"""The entries of managedFields."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.apiserver.apply import managers
from torchyard.apiserver.apply.managers import ManagedFields, VersionedSet, applier, cap_updaters, updater


def entry(manager: str, operation: str = "Update", **more: Any) -> dict[str, Any]:
    fields = {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    return {"manager": manager, "operation": operation, **fields, **more}


def test_entries_are_decoded_and_encoded_alike() -> None:
    entries = [entry("a", "Apply", subresource="status", time="2026-01-01T00:00:00Z"), entry("b")]
    decoded = managers.decode_managed_fields(entries)
    assert decoded is not None
    assert managers.encode_managed_fields(decoded) == entries


def test_appliers_come_first_then_the_oldest_then_by_name() -> None:
    times = {"time": "2026-01-01T00:00:00Z"}, {"time": "2026-01-02T00:00:00Z"}
    ordered = [
        entry("z", "Apply", **times[0]),
        entry("a", "Apply", **times[1]),
        entry("x"),
        entry("b", **times[0]),
        entry("c", **times[0]),
        entry("c", subresource="scale", **times[0]),
        entry("a", **times[1]),
    ]
    decoded = managers.decode_managed_fields(list(reversed(ordered)))
    assert decoded is not None
    assert managers.encode_managed_fields(decoded) == ordered


def test_an_applier_has_one_identity_for_all_versions() -> None:
    decoded = managers.decode_managed_fields(
        [entry("a", "Apply", apiVersion="v1"), entry("a", "Apply", apiVersion="v2")]
    )
    assert decoded == {applier("a", ""): VersionedSet({"f:data": {}}, "v2")}
    assert updater("a", "v1", "") != updater("a", "v2", "")


def test_managers_sort_by_their_json_texts() -> None:
    ordered = [applier("a b", ""), updater("a", "v1", "status"), updater("a", "v1", ""), updater("b", "v1", "")]
    assert sorted([ordered[1], *ordered[2:], ordered[0]], key=lambda manager: manager.sort_key) == ordered


def test_a_manager_without_a_name_is_unknown() -> None:
    assert updater("", "v1", "").name == applier("", "").name == "unknown"


@pytest.mark.parametrize(
    "change",
    [{"operation": "Remove"}, {"apiVersion": ""}, {"fieldsType": ""}, {"fieldsType": "X"}, {"fieldsV1": {"x": {}}}],
)
def test_a_malformed_entry_makes_the_record_invalid(change: dict[str, Any]) -> None:
    assert managers.decode_managed_fields([entry("a"), entry("b", **change)]) is None


def many(count: int, version: str = "v1") -> ManagedFields:
    return {
        updater(f"u{number:02}", version, ""): VersionedSet(
            {f"f:{version}{number:02}": {}}, version, f"2026-01-{number + 1:02}"
        )
        for number in range(count)
    }


def test_ten_updaters_are_kept_as_they_are() -> None:
    assert cap_updaters(many(10)) == many(10)


def test_the_oldest_updaters_are_merged_with_their_newest_time() -> None:
    result = cap_updaters(many(12))
    assert len(result) == 10
    old = result[updater("ancient-changes", "v1", "")]
    assert old == VersionedSet({"f:v102": {}, "f:v101": {}, "f:v100": {}}, "v1", "2026-01-03")
    assert cap_updaters({**result, updater("z", "v1", ""): VersionedSet({"f:z": {}}, "v1", "2026-02-01")})[
        updater("ancient-changes", "v1", "")
    ] == VersionedSet({"f:v103": {}, **old.fields}, "v1", "2026-01-04")


def test_appliers_are_never_merged() -> None:
    appliers = {applier(f"a{number}", ""): VersionedSet({"f:x": {}}, "v1") for number in range(20)}
    assert cap_updaters({**many(10), **appliers}) == {**many(10), **appliers}


def test_updaters_of_different_versions_stay_apart() -> None:
    result = cap_updaters({**many(6), **many(6, "v2")})
    assert {manager for manager in result if manager.name == "ancient-changes"} == {
        updater("ancient-changes", "v1", ""),
        updater("ancient-changes", "v2", ""),
    }
    assert len(result) == 10
