"""The controller is restarted: nothing is created twice, nothing is lost, no event is repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.controllers.pytorchjob.conftest import Cluster
from tests.support.pytorchjobs import job

from torchyard.api.gvr import PODS
from torchyard.api.pytorchjob import messages
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

JOBS = [f"job{number}" for number in range(8)]


@asynccontextmanager
async def up(directory: Path) -> AsyncIterator[Cluster]:
    async with Plane(PlaneSettings(state=directory / "state", port=0)) as plane:
        yield Cluster(plane.client("test"), "default")


def replicas(name: str) -> list[str]:
    return [f"{name}-master-0", f"{name}-worker-0", f"{name}-worker-1"]


async def test_a_plane_that_stops_while_creating_pods_continues_after_a_restart(tmp_path: Path) -> None:
    wanted = sorted(pod for name in JOBS for pod in replicas(name))
    async with up(tmp_path) as cluster:
        for name in JOBS:
            await cluster.create(job(name))

        async def begun() -> bool:
            return bool(await cluster.names(PODS))

        await cluster.until(begun)
        first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await pods(cluster)}
    async with up(tmp_path) as cluster:
        await cluster.pods(*wanted)
        after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await pods(cluster)}
        assert {name: after[name] for name in first} == first
        for name in JOBS:
            await cluster.move(f"{name}-master-0", "Succeeded", code=0)
        for name in JOBS:
            await cluster.conditions(("Created", "True"), ("Succeeded", "True"), name=name)

        async def recorded() -> bool:
            events = await cluster.events(messages.HAS_SUCCEEDED)
            return [event["reason"] for event in events].count(messages.HAS_SUCCEEDED) == len(JOBS)

        await cluster.until(recorded)
    async with up(tmp_path) as cluster:
        await cluster.settle()  # a finished job gets no further events
        events = await cluster.events(messages.HAS_SUCCEEDED)
        ends = [event for event in events if event["reason"] == messages.HAS_SUCCEEDED]
        assert sorted((end["involvedObject"]["name"], end["count"]) for end in ends) == [(name, 1) for name in JOBS]


async def test_restart_counts_survive_a_restart_of_the_plane(tmp_path: Path) -> None:
    manifest = job(worker=None, policy="ExitCode", run={"backoffLimit": 2})
    async with up(tmp_path) as cluster:
        await cluster.create(manifest)
        await cluster.pods("train-master-0")
        first = (await cluster.pod("train-master-0"))["metadata"]["uid"]
        await cluster.move("train-master-0", "Failed", code=137)

        async def anew() -> bool:
            pod = await cluster.client.find(PODS, "train-master-0", "default")
            return bool(pod and pod["metadata"]["uid"] != first)

        await cluster.until(anew)
    async with up(tmp_path) as cluster:
        await cluster.move("train-master-0", "Failed", code=137)
        await cluster.conditions(("Created", "True"), ("Restarting", "True"), ("Failed", "True"))


async def pods(cluster: Cluster) -> list[dict[str, dict[str, str]]]:
    return (await cluster.client.list(PODS, "default")).items
