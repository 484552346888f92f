"""Table responses, and rows of pods with a fixed clock."""

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
def test_the_status_column_of_a_pod(case: Object) -> None:
    pod = {**case, "metadata": dict(case["metadata"])}
    if case.get("terminating"):
        pod["metadata"]["deletionTimestamp"] = "2024-03-04T10:00:00Z"
    assert row(pod)[2] == WORDS[case["metadata"]["name"]]


def test_a_row_has_the_age_and_the_last_restart() -> None:
    crashing = next(pod for pod in PODS if pod["metadata"]["name"] == "crashing")
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


def test_a_kind_without_a_printer_has_name_and_creation_time() -> None:
    assert columns_of("example.com", "things") is GENERIC
    assert row(POD, "example.com", "things") == ["p", "2024-03-04T10:00:00Z"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("requested", "included"),
    [
        ("", {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}),
        ("Metadata", {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}),
        ("Object", POD),
        ("None", None),
    ],
)
def test_a_table_includes_objects_as_requested(requested: str, included: Object | None, version: str) -> None:
    if included is not None and included["kind"] == "PartialObjectMetadata":
        included = {**included, "apiVersion": f"meta.k8s.io/{version}"}
    printed = table(
        columns_of("", "pods"),
        [POD],
        NOW,
        metadata={"resourceVersion": "7"},
        include=include_object(requested),
        version=version,
    )
    assert (printed["kind"], printed["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")
    assert printed["metadata"] == {"resourceVersion": "7"}
    assert [column["name"] for column in printed["columnDefinitions"]][:5] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    assert printed["rows"] == [{"cells": row(POD), "object": included}]


def test_an_unknown_include_object_is_rejected_as_by_kube_apiserver() -> None:
    with pytest.raises(
        StatusError, match="includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None'"
    ):
        include_object("Foo")


def test_later_tables_of_a_watch_need_no_definitions() -> None:
    assert table(columns_of("", "pods"), [POD], NOW, definitions=False)["columnDefinitions"] is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_rows_of_finished_pods_have_a_completed_condition(phase: str) -> None:
    (row,) = table(columns_of("", "pods"), [{**POD, "status": {"phase": phase}}], NOW)["rows"]
    assert [(condition["type"], condition["status"], condition["reason"]) for condition in row["conditions"]] == [
        ("Completed", "True", phase)
    ]


def test_every_row_has_a_cell_per_column_even_for_an_empty_object() -> None:
    for (group, plural), columns in COLUMNS.items():
        if plural == "ipaddresses":  # upstream's rows have more cells than columns
            continue
        assert len(columns.cells({"metadata": {"name": "x"}}, NOW)) == len(columns.columns), (group, plural)
