"""Tables: their shape, and pods' rows with a fixed clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.api.table_cases.pods import PODS

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.printing import COLUMNS, GENERIC, columns_of, include_object, table

NOW = datetime(2024, 3, 4, 10, 0, 12, tzinfo=UTC)
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "creationTimestamp": "2024-03-04T10:00:00Z"},
    "spec": {"containers": [{"name": "a"}]},
    "status": {"phase": "Running"},
}
WORDS = {
    "new": "",
    "gated": "SchedulingGated",
    "evicted": "Evicted",
    "succeeded": "Completed",
    "errored": "Error",
    "signalled": "Signal:9",
    "exited": "ExitCode:3",
    "creating": "ContainerCreating",
    "running": "Running",
    "crashing": "CrashLoopBackOff",
    "half-done": "NotReady",
    "done-but-ready": "Running",
    "restarted": "Running",
    "init-new": "Pending",
    "init-running": "Init:0/2",
    "init-second": "Init:1/2",
    "init-error": "Init:Error",
    "init-signal": "Init:Signal:9",
    "init-exit": "Init:ExitCode:7",
    "init-crashing": "Init:CrashLoopBackOff",
    "init-done": "PodInitializing",
    "sidecar": "Running",
    "sidecar-starting": "Init:0/2",
    "lost": "Unknown",
    "terminating": "Terminating",
    "terminated": "Succeeded",
    "nominated": "Pending",
}


def row(obj: Object, group: str = "", plural: str = "pods") -> list[Any]:
    cells: list[Any] = table(columns_of(group, plural), [obj], NOW)["rows"][0]["cells"]
    return cells


@pytest.mark.parametrize("case", PODS, ids=lambda case: str(case["metadata"]["name"]))
def test_one_word_sums_up_a_pod(case: Object) -> None:
    pod = {**case, "metadata": dict(case["metadata"])}
    if case.get("terminating"):
        pod["metadata"]["deletionTimestamp"] = "2024-03-04T10:00:00Z"
    assert row(pod)[2] == WORDS[case["metadata"]["name"]]


def test_a_row_tells_ages_and_the_last_restart() -> None:
    crashing = next(one for one in PODS if one["metadata"]["name"] == "crashing")
    pod = {**crashing, "metadata": {**crashing["metadata"], "creationTimestamp": "2024-03-04T09:00:00Z"}}
    assert row(pod) == [
        "crashing",
        "1/2",
        "CrashLoopBackOff",
        "4 (3d ago)",
        "60m",
        "<none>",
        "<none>",
        "<none>",
        "<none>",
    ]


def test_a_kind_without_a_printer_shows_name_and_creation() -> None:
    assert columns_of("example.com", "things") is GENERIC
    assert row(POD, "example.com", "things") == ["p", "2024-03-04T10:00:00Z"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("", {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}),
        ("Metadata", {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}),
        ("Object", POD),
        ("None", None),
    ],
)
def test_a_table_carries_the_objects_as_asked(asked: str, shown: Object | None, version: str) -> None:
    if shown is not None and shown["kind"] == "PartialObjectMetadata":
        shown = {**shown, "apiVersion": f"meta.k8s.io/{version}"}
    found = table(
        columns_of("", "pods"),
        [POD],
        NOW,
        metadata={"resourceVersion": "7"},
        include=include_object(asked),
        version=version,
    )
    assert (found["kind"], found["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")
    assert found["metadata"] == {"resourceVersion": "7"}
    assert [one["name"] for one in found["columnDefinitions"]][:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert found["rows"] == [{"cells": row(POD), "object": shown}]


def test_an_unknown_include_object_is_refused_in_the_real_servers_words() -> None:
    with pytest.raises(
        StatusError, match="includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None'"
    ):
        include_object("Foo")


def test_later_tables_of_a_watch_need_no_definitions() -> None:
    assert table(columns_of("", "pods"), [POD], NOW, definitions=False)["columnDefinitions"] is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_rows_of_finished_pods_say_so(phase: str) -> None:
    (found,) = table(columns_of("", "pods"), [{**POD, "status": {"phase": phase}}], NOW)["rows"]
    assert [(one["type"], one["status"], one["reason"]) for one in found["conditions"]] == [
        ("Completed", "True", phase)
    ]


def test_every_row_fits_its_columns_even_for_an_empty_object() -> None:
    for (group, plural), columns in COLUMNS.items():
        if plural == "ipaddresses":  # upstream's rows are longer than their columns
            continue
        assert len(columns.cells({"metadata": {"name": "x"}}, NOW)) == len(columns.columns), (group, plural)
