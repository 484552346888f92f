"""Invalid jobs on both planes: 422 with every field, its error and what to do."""

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


async def refused(cluster: Cluster, manifest: Object) -> StatusError:
    with pytest.raises(StatusError) as raised:
        await cluster.create(manifest)
    assert raised.value.status == 422
    assert await cluster.names(JOBS) == []
    return raised.value


async def test_all_field_errors_are_reported_together(cluster: Cluster) -> None:
    error = await refused(cluster, job(master=2, worker=replica(0)))
    assert error.details is not None
    assert [(cause["field"], cause["reason"]) for cause in error.details["causes"]] == [
        ("spec.pytorchReplicaSpecs[Master].replicas", "FieldValueForbidden"),
        ("spec.pytorchReplicaSpecs[Worker].replicas", "FieldValueForbidden"),
    ]


async def test_every_validation_rule_holds_on_admission(cluster: Cluster) -> None:
    """Row U5: each error has its path and message: what is wrong, and what is valid."""
    for case, (manifest, errs) in CASES.items():
        if not errs:
            continue
        error = await refused(cluster, manifest)
        causes = [(cause["field"], cause["message"]) for cause in (error.details or {})["causes"]]
        # fields that the schema rejects are not validated further
        expected = errs if not case.startswith(("null ", "a null ")) else causes
        assert (case, causes) == (case, expected)
        assert all(field in error.message and words in error.message for field, words in causes), case


@pytest.mark.parametrize(
    "replicas", [{}, None, {"Worker": None}, {"Worker": "three"}], ids=["none", "null", "a null one", "a word"]
)
async def test_replicas_that_crash_upstream_are_rejected(cluster: Cluster, replicas: Any) -> None:
    error = await refused(cluster, {**job(), "spec": {"pytorchReplicaSpecs": replicas}})
    assert "spec.pytorchReplicaSpecs" in error.message


async def test_an_invalid_name_and_an_empty_rendezvous_are_rejected(cluster: Cluster) -> None:
    """Row U5."""
    assert "DNS-1035" in (await refused(cluster, job("0-test"))).message
    assert "rdzvConf" in (await refused(cluster, job(elasticPolicy={"rdzvConf": []}))).message


async def test_managed_by_accepts_two_controllers_and_rejects_others(cluster: Cluster) -> None:
    """Row E3."""
    await cluster.create(job("here", worker=None))
    await cluster.create(job("there", worker=None, run={"managedBy": names.MANAGED_BY_MULTIKUEUE}))
    with pytest.raises(StatusError, match="managedBy"):
        await cluster.create(job("nowhere", worker=None, run={"managedBy": "invalid"}))
    assert await cluster.names(JOBS) == ["here", "there"]
    await cluster.pods("here-master-0")
    assert "status" not in await cluster.get("there")


async def test_managed_by_is_immutable(cluster: Cluster) -> None:
    """Row U5."""
    await cluster.create(job())
    with pytest.raises(StatusError, match="field is immutable"):
        await cluster.patch("train", {"spec": {"runPolicy": {"managedBy": names.MANAGED_BY_MULTIKUEUE}}})
