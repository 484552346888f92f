"""Whole jobs with real pods: the master's name resolves, ranks rendezvous, exit codes and logs are the programs'."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.controllers.pytorchjob.conftest import Cluster
from tests.node import support
from tests.support.pytorchjobs import job, replica
from tests.support.training import interpreter

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages
from torchyard.core.pod.logs import LogOptions
from torchyard.node.shutdown import stop_pods
from torchyard.node.streams import NodeStreams
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

IMAGE = "pytorch/pytorch:latest"
ENDED = (("Created", "True"), ("Running", "False"), ("Succeeded", "True"))

MEET = """
import os, socket, time
rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            peer, _ = server.accept()
            print("met", peer.recv(9).decode(), flush=True)
            peer.close()
else:
    for _ in range(1200):
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(str(rank).encode())
"""
REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(value)
print("sum", value.item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@asynccontextmanager
async def running(directory: Path, python: str) -> AsyncIterator[tuple[Plane, Cluster]]:
    support.need_network()
    settings = PlaneSettings(state=directory / "state", port=0, node=True, node_name="here", python=python)
    try:
        async with Plane(settings) as plane:
            assert plane.agent
            await asyncio.wait_for(plane.agent.ready.wait(), 30)
            yield plane, Cluster(plane.client("test"), "default")
    finally:
        await stop_pods(settings.state / "node")


def program(text: str) -> Object:
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    return {"image": IMAGE, "command": ["python3", "-c", text], "env": env}


async def log(plane: Plane, cluster: Cluster, pod: str) -> str:
    assert plane.agent
    streams = NodeStreams(plane.agent.context.settings.pods)
    pieces = [piece async for piece in streams.logs(await cluster.pod(pod), "pytorch", LogOptions())]
    return b"".join(pieces).decode()


async def test_a_master_and_two_workers_rendezvous_by_the_masters_name(tmp_path: Path) -> None:
    async with running(tmp_path, sys.executable) as (plane, cluster):
        spec: Object = {"container": program(MEET), "policy": "Never"}
        await cluster.create(job(master=replica(1, **spec), worker=replica(2, **spec)))
        status = await cluster.conditions(*ENDED)
        assert status["replicaStatuses"]["Master"]["succeeded"] == 1
        assert sorted((await log(plane, cluster, "train-master-0")).splitlines()) == ["met 1", "met 2"]


async def test_the_exit_code_of_a_real_program_fails_the_job(tmp_path: Path) -> None:
    async with running(tmp_path, sys.executable) as (_, cluster):
        spec: Object = {"container": program("raise SystemExit(3)"), "policy": "ExitCode"}
        await cluster.create(job(master=replica(1, **spec), worker=None))

        async def failed() -> bool:
            status = (await cluster.get()).get("status") or {}
            return any(condition["type"] == "Failed" for condition in status.get("conditions") or ())

        await cluster.until(failed)
        events = await cluster.events(messages.EXITED)
        assert "Pod: default.train-master-0 exited with code 3" in [event["message"] for event in events]


@pytest.mark.train
async def test_a_master_and_a_worker_reduce_with_gloo(tmp_path: Path) -> None:
    """Row E1."""
    async with running(tmp_path, interpreter()) as (plane, cluster):
        spec: Object = {"container": program(REDUCE), "policy": "OnFailure"}
        await cluster.create(job(master=replica(1, **spec), worker=replica(1, **spec)))
        await cluster.conditions(*ENDED, seconds=150)  # importing torch takes time on a busy machine
        assert "sum 3.0 of 2" in await log(plane, cluster, "train-master-0")


async def test_a_gang_is_pending_until_it_is_complete_or_its_minimum_is_lowered(tmp_path: Path) -> None:
    """Row E2."""
    async with running(tmp_path, sys.executable) as (_, cluster):
        spec: Object = {"container": program("print('hello')"), "policy": "Never"}
        gang = {"schedulingPolicy": {"minAvailable": 10}}
        await cluster.create(job(master=replica(1, **spec), worker=replica(1, **spec), run=gang))
        events = await cluster.events("FailedScheduling")
        assert any("gang has" in event["message"] for event in events)
        await cluster.conditions(("Created", "True"))
        await cluster.patch("train", {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}})

        async def succeeded() -> bool:
            status = (await cluster.get()).get("status") or {}
            return any(condition["type"] == "Succeeded" for condition in status.get("conditions") or ())

        await cluster.until(succeeded)
