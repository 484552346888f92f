"""waitForPodsReady from a Kueue configuration file: blocked admission, and requeueing after a backoff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.controllers.queue.conftest import Cluster

from torchyard.api.errors import YardError
from torchyard.api.queue import messages
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def settings(directory: Path, text: str) -> PlaneSettings:
    file = directory / "kueue.yaml"
    file.write_text(HEAD + text)
    return PlaneSettings(state=directory / "state", port=0, queue_config=file)


async def test_with_block_admission_jobs_start_one_by_one(tmp_path: Path) -> None:
    async with Plane(settings(tmp_path, "waitForPodsReady: {blockAdmission: true}")) as plane:
        cluster = Cluster(plane.client("test"))
        await cluster.with_queue()
        await cluster.job("first")
        await cluster.running("first")
        await cluster.job("second")
        condition = await cluster.condition("second", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING)
        assert condition["message"] == "waiting for all admitted workloads to be in PodsReady condition"
        await cluster.set_pod_phase("first", "Running")
        await cluster.running("second")


async def test_pods_ready_timeout_evicts_and_requeues(tmp_path: Path) -> None:
    times = "waitForPodsReady: {timeout: 1s, requeuingStrategy: {backoffBaseSeconds: 1}}"
    async with Plane(settings(tmp_path, times)) as plane:
        cluster = Cluster(plane.client("test"))
        await cluster.with_queue()
        await cluster.job("slow")
        evicted = await cluster.condition("slow", messages.EVICTED, reason=messages.REASON_PODS_READY_TIMEOUT)
        assert evicted["message"].startswith("Exceeded the PodsReady timeout default/job-slow-")
        await cluster.condition("slow", messages.REQUEUED, reason=messages.REASON_BACKOFF_FINISHED)

        async def requeued_twice() -> Any:
            workload = await cluster.workload("slow")
            return (((workload or {}).get("status") or {}).get("requeueState") or {}).get("count", 0) >= 2

        await cluster.until(requeued_twice, "a second requeue")


INVALID = {
    "unsupported field": ("multiKueue: {}", "multiKueue: Forbidden"),
    "invalid YAML": ("a: [", "is not valid YAML"),
}


@pytest.mark.parametrize(("text", "message"), INVALID.values(), ids=INVALID)
async def test_invalid_configuration_is_rejected_at_start(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(YardError, match=message):
        async with Plane(settings(tmp_path, text)):
            raise AssertionError("it started")


async def test_missing_configuration_file_is_named(tmp_path: Path) -> None:
    missing = PlaneSettings(state=tmp_path / "state", port=0, queue_config=tmp_path / "nope.yaml")
    with pytest.raises(YardError, match=r"--queue-config .*nope\.yaml: No such file"):
        async with Plane(missing):
            raise AssertionError("it started")
