"""waitForPodsReady as a Kueue configuration file sets it: one after the other, and again after a pause."""

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
        said = await cluster.condition(
            "second", messages.QUOTA_RESERVED, "False", messages.REASON_WAITING_FOR_PODS_READY
        )
        assert said["message"] == "waiting for all admitted workloads to be in PodsReady condition"
        await cluster.move_pods("first", "Running")
        await cluster.running("second")


async def test_pods_that_do_not_come_make_room_and_the_job_tries_again(tmp_path: Path) -> None:
    times = "waitForPodsReady: {timeout: 1s, requeuingStrategy: {backoffBaseSeconds: 1}}"
    async with Plane(settings(tmp_path, times)) as plane:
        cluster = Cluster(plane.client("test"))
        await cluster.with_queue()
        await cluster.job("slow")
        found = await cluster.condition("slow", messages.EVICTED, reason=messages.REASON_PODS_READY_TIMEOUT)
        assert found["message"].startswith("Exceeded the PodsReady timeout default/job-slow-")
        await cluster.condition("slow", messages.REQUEUED, reason=messages.REASON_BACKOFF_FINISHED)

        async def tried_again() -> Any:
            workload = await cluster.workload("slow")
            return (((workload or {}).get("status") or {}).get("requeueState") or {}).get("count", 0) >= 2

        await cluster.until(tried_again, "a second try")


BAD = {
    "a field we do not take": ("fairSharing: {enable: true}", "fairSharing: Forbidden"),
    "no YAML": ("a: [", "is not valid YAML"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
async def test_a_wrong_file_is_refused_at_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(YardError, match=said):
        async with Plane(settings(tmp_path, text)):
            raise AssertionError("it started")


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = PlaneSettings(state=tmp_path / "state", port=0, queue_config=tmp_path / "nope.yaml")
    with pytest.raises(YardError, match=r"--queue-config .*nope\.yaml: No such file"):
        async with Plane(missing):
            raise AssertionError("it started")
