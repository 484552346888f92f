"""A master on a real API server, with its real coordinator; pods are only objects here, and this test ends them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.elasticdl.test_pods import TUTORIAL

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.elastic.cli import request_coordinator
from torchyard.elasticdl import cli, pods, supervisor
from torchyard.elasticdl.master import Master
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

MASTER = "elasticdl-test-mnist-allreduce-master"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0)) as plane:
        yield plane.client("test")


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:
    async with asyncio.timeout(seconds):
        while not (result := await condition()):
            await asyncio.sleep(0.1)
    return result


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


class Stage:
    def __init__(self, client: Client, folder: Path, *more: str) -> None:
        self.client = client
        self.folder = folder
        arguments = [*TUTORIAL[1:], f"--port={free_port()}", *more]
        self.arguments = supervisor.parse(arguments)
        self.task: asyncio.Task[int] | None = None

    async def __aenter__(self) -> Stage:
        arguments = cli.parser().parse_args(TUTORIAL)
        await until(lambda: self._create_pod(pods.master(arguments, "true")))
        self.task = asyncio.create_task(Master(self.arguments, self.client, self.folder).run())
        return self

    async def __aexit__(self, *how: object) -> None:
        assert self.task is not None
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    async def _create_pod(self, pod: Object) -> bool:
        """True once it is there; a namespace's account comes a moment after the namespace."""
        try:
            await self.client.create(PODS, pod)
        except StatusError as error:
            return error.status == 409
        return True

    async def workers(self) -> list[str]:
        worker_pods = (await self.client.list(PODS, "default", labels=f"{pods.TYPE}={pods.WORKER}")).items
        return sorted(
            pod["metadata"]["name"].rpartition("-")[2]
            for pod in worker_pods
            if not pod["metadata"].get("deletionTimestamp")
        )

    async def have(self, *numbers: str) -> None:
        async def workers_exist() -> bool:
            return set(numbers) <= set(await self.workers())

        await until(workers_exist)

    async def fail(self, number: str, code: int) -> None:
        state = {"terminated": {"exitCode": code, "reason": "Error"}}
        status = {
            "phase": "Failed",
            "containerStatuses": [
                {"name": "w", "state": state, "image": "", "imageID": "", "ready": False, "restartCount": 0}
            ],
        }
        name = f"test-mnist-allreduce-edljob-worker-{number}"
        await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")


async def test_a_master_replaces_its_workers_and_never_reuses_an_index(client: Client, tmp_path: Path) -> None:
    async with Stage(client, tmp_path / "job") as stage:
        await stage.have("0", "1")
        service = await client.get(SERVICES, MASTER, "default")
        assert service["spec"]["clusterIP"] == "None"
        assert (await client.get(PODS, MASTER, "default"))["metadata"]["labels"]["status"] == "Running"
        await client.delete(PODS, "test-mnist-allreduce-edljob-worker-0", "default", grace=0)
        await stage.have("1", "2")
        await stage.fail("1", 137)
        await stage.have("2", "3")
    async with Stage(client, tmp_path / "job") as again:
        await client.delete(PODS, "test-mnist-allreduce-edljob-worker-3", "default", grace=0)
        await again.have("2", "4")


async def test_the_scale_annotation_of_the_master_pod_is_passed_to_the_coordinator(
    client: Client, tmp_path: Path
) -> None:
    async with Stage(client, tmp_path / "job") as stage:
        await stage.have("0", "1")
        await client.patch(PODS, MASTER, {"metadata": {"annotations": {pods.WORKERS_ANNOTATION: "1"}}}, "default")

        async def scaled() -> bool:
            status = await asyncio.to_thread(request_coordinator, tmp_path / "job", "/status")
            return bool(status["limits"]["want"] == 1)

        await until(scaled)


async def test_a_job_whose_workers_only_fail_ends_as_failed(client: Client, tmp_path: Path) -> None:
    async with Stage(client, tmp_path / "job") as stage:
        assert stage.task is not None
        failed: set[str] = set()
        while not stage.task.done():
            for number in set(await stage.workers()) - failed:
                failed.add(number)
                await stage.fail(number, 1)
            await asyncio.sleep(0.1)
        assert stage.task.result() == 1
    assert (await client.get(PODS, MASTER, "default"))["metadata"]["labels"]["status"] == "Failed"
    assert len(failed) <= 6


async def test_pods_and_annotations_of_others_do_not_end_the_master(client: Client, tmp_path: Path) -> None:
    """A pod with the labels of a worker, but of another owner, is not a worker; no annotation ends the master."""
    async with Stage(client, tmp_path / "job") as stage:
        await stage.have("0", "1")
        labels = pods.labels("test-mnist-allreduce", pods.WORKER, 0)
        del labels[pods.INDEX]
        container = {"name": "c", "image": "none"}
        stranger = {"metadata": {"name": "stranger", "labels": labels}, "spec": {"containers": [container]}}
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **stranger}, "default")
        status = {"status": {"phase": "Failed"}}
        await client.patch(PODS, "stranger", status, "default", subresource="status")
        for value in ("²", "9" * 40, "-1", "two"):
            annotations = {"metadata": {"annotations": {pods.WORKERS_ANNOTATION: value}}}
            await client.patch(PODS, MASTER, annotations, "default")
        await client.delete(PODS, "test-mnist-allreduce-edljob-worker-0", "default", grace=0)
        await stage.have("1", "2")
        assert stage.task is not None
        assert not stage.task.done()
