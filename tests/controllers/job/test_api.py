"""Jobs in the API server: defaults, validation, columns. Numbers are those of the Job conformance points."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from tests.controllers.job.conftest import Cluster
from tests.support.jobs import manifest

from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def test_a_job_gets_its_defaults_and_no_status(cluster: Cluster) -> None:
    """Conformance point 01."""
    body = manifest(template={"metadata": {"labels": {"app": "x"}}})
    job = await cluster.create({**body, "status": {"succeeded": 7}})
    spec, uid = job["spec"], job["metadata"]["uid"]
    assert {key: spec[key] for key in spec if key not in ("template", "selector")} == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert job["metadata"]["generation"] == 1
    assert not job.get("status")
    assert job["metadata"]["labels"]["app"] == "x"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (1, 1)),
        ({"parallelism": 3}, (None, 3)),
        ({"completions": 3}, (3, 1)),
        ({"completions": 3, "parallelism": 2}, (3, 2)),
    ],
)
async def test_completions_and_parallelism_default_together(
    cluster: Cluster, fields: Object, expected: tuple[int | None, int]
) -> None:
    """Conformance point 02."""
    spec = (await cluster.create(manifest(**fields)))["spec"]
    assert (spec.get("completions"), spec["parallelism"]) == expected


async def test_limits_and_policies_change_defaults(cluster: Cluster) -> None:
    """Conformance point 01."""
    per_index = manifest("a", completionMode="Indexed", completions=1, backoffLimitPerIndex=1)
    assert (await cluster.create(per_index))["spec"]["backoffLimit"] == 2147483647
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job = await cluster.create(manifest("b", podFailurePolicy={"rules": [rule]}))
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


async def test_a_generated_name_keeps_58_characters_and_gets_five(cluster: Cluster) -> None:
    """Conformance point 03."""
    short = await cluster.create(manifest("lightweight-job-"))
    assert re.fullmatch(r"lightweight-job-[bcdfghjklmnpqrstvwxz2456789]{5}", short["metadata"]["name"])
    long = await cluster.create(manifest("j" * 70 + "-"))
    assert re.fullmatch(r"j{58}[bcdfghjklmnpqrstvwxz2456789]{5}", long["metadata"]["name"])


async def test_the_template_gets_current_and_legacy_labels(cluster: Cluster) -> None:
    """Conformance point 04."""
    job = await cluster.create(manifest())
    uid = job["metadata"]["uid"]
    assert job["spec"]["template"]["metadata"]["labels"] == {
        "job-name": "work",
        "batch.kubernetes.io/job-name": "work",
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec.completions", 5),
        ("spec.selector", {"matchLabels": {"a": "b"}}),
        ("spec.completionMode", "Indexed"),
        ("spec.podFailurePolicy", {"rules": [{"action": "Count", "onPodConditions": [{"type": "X"}]}]}),
        ("spec.backoffLimitPerIndex", 1),
        ("spec.managedBy", "example.com/other"),
        ("spec.template", {"spec": {"terminationGracePeriodSeconds": 1}}),
    ],
)
async def test_changes_of_immutable_fields_are_rejected_with_their_path(
    cluster: Cluster, field: str, value: Any
) -> None:
    """Conformance point 34."""
    await cluster.create(manifest(completions=2, suspend=True))
    message = await cluster.refused(**{field.removeprefix("spec."): value})
    assert f"{field}: Invalid value" in message
    assert "field is immutable" in message


async def test_mutable_fields_can_change(cluster: Cluster) -> None:
    """Conformance point 34."""
    await cluster.create(manifest(suspend=True))
    changes: Object = {"parallelism": 2, "activeDeadlineSeconds": 60, "backoffLimit": 1, "ttlSecondsAfterFinished": 5}
    job = await cluster.patch(**changes)
    assert {key: job["spec"][key] for key in changes} == changes
    assert job["metadata"]["generation"] == 2


async def test_a_table_has_kubectls_columns(cluster: Cluster) -> None:
    """Conformance point 43."""
    await cluster.create(manifest())
    (pod,) = await cluster.pods(1)
    await cluster.counted(active=1)
    columns, row = await _row(cluster)
    assert columns == ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"]
    assert row[:3] == ["work", "Running", "0/1"]
    assert re.fullmatch(r"\d+s", row[3])
    await cluster.succeed(pod)
    await cluster.complete()
    assert (await _row(cluster))[1][1:3] == ["Complete", "1/1"]


async def _row(cluster: Cluster) -> tuple[list[str], list[Any]]:
    table = orjson.loads((await cluster.ask("GET", accept=TABLE)).body)
    return [definition["name"] for definition in table["columnDefinitions"]], table["rows"][0]["cells"]


async def test_a_name_that_is_not_a_valid_host_name_gets_a_warning(cluster: Cluster) -> None:
    """Conformance point 46."""
    answer = await cluster.ask("POST", body=manifest("with.dots", suspend=True))
    assert answer.status == 201
    warning = {name.lower(): value for name, value in answer.headers.items()}["warning"]
    assert "a DNS label is recommended" in warning
    assert "acts on it" not in warning


async def test_a_dry_run_stores_nothing(cluster: Cluster) -> None:
    """Conformance point 47."""
    await cluster.client.raw("POST", f"{JOBS.path(cluster.namespace)}?dryRun=All", manifest())
    with pytest.raises(StatusError, match="not found"):
        await cluster.get()
    assert await cluster.all_pods() == []
