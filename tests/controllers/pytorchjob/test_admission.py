"""What both planes answer to jobs that cannot be: 422 with every field, its fault and what would be right."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.pytorchjob.test_validation import CASES
from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import job, replica

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.controllers.pytorchjob import JOBS


async def refused(cluster: Cluster, given: Object) -> StatusError:
    with pytest.raises(StatusError) as found:
        await cluster.create(given)
    assert found.value.status == 422
    assert await cluster.names(JOBS) == []
    return found.value


async def test_every_fault_is_told_at_once(cluster: Cluster) -> None:
    error = await refused(cluster, job(master=2, worker=replica(0)))
    assert error.details is not None
    assert [(one["field"], one["reason"]) for one in error.details["causes"]] == [
        ("spec.pytorchReplicaSpecs[Master].replicas", "FieldValueForbidden"),
        ("spec.pytorchReplicaSpecs[Worker].replicas", "FieldValueForbidden"),
    ]


async def test_u5_every_rule_holds_at_the_door(cluster: Cluster) -> None:
    """Each with its path and its words: what is wrong, and what would be right."""
    for case, (given, errs) in CASES.items():
        if not errs:
            continue
        error = await refused(cluster, given)
        causes = [(one["field"], one["message"]) for one in (error.details or {})["causes"]]
        # what the schema refuses is not looked at further
        expected = errs if not case.startswith(("null ", "a null ")) else causes
        assert (case, causes) == (case, expected)
        assert all(field in error.message and words in error.message for field, words in causes), case


@pytest.mark.parametrize(
    "replicas", [{}, None, {"Worker": None}, {"Worker": "three"}], ids=["none", "null", "a null one", "a word"]
)
async def test_replicas_that_crash_upstream_are_refused(cluster: Cluster, replicas: Any) -> None:
    error = await refused(cluster, {**job(), "spec": {"pytorchReplicaSpecs": replicas}})
    assert "spec.pytorchReplicaSpecs" in error.message


async def test_u5_a_bad_name_and_an_empty_rendezvous_are_refused(cluster: Cluster) -> None:
    assert "DNS-1035" in (await refused(cluster, job("0-test"))).message
    assert "rdzvConf" in (await refused(cluster, job(elasticPolicy={"rdzvConf": []}))).message


async def test_e3_three_managers(cluster: Cluster) -> None:
    await cluster.create(job("here", worker=None))
    await cluster.create(job("there", worker=None, run={"managedBy": names.MANAGED_BY_MULTIKUEUE}))
    with pytest.raises(StatusError, match="managedBy"):
        await cluster.create(job("nowhere", worker=None, run={"managedBy": "invalid"}))
    assert await cluster.names(JOBS) == ["here", "there"]
    await cluster.pods("here-master-0")
    assert "status" not in await cluster.get("there")


async def test_u5_the_manager_cannot_be_changed_through_the_api(cluster: Cluster) -> None:
    await cluster.create(job())
    with pytest.raises(StatusError, match="field is immutable"):
        await cluster.patch("train", {"spec": {"runPolicy": {"managedBy": names.MANAGED_BY_MULTIKUEUE}}})
