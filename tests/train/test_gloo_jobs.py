"""Two four-rank gloo jobs at once, with the same names and the same MASTER_PORT, in two namespaces."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support
from tests.support.kubernetes import ROOT
from tests.support.training import interpreter
from tests.train import ordinary

from torchyard.api.gvr import ENDPOINT_SLICES, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from torchyard.core.pod.logs import LogOptions
from torchyard.kube.client import Client
from torchyard.node.shutdown import stop_pods
from torchyard.node.streams import NodeStreams
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

pytestmark = pytest.mark.train

RANKS = 4
TRAIN = """
import os, socket, time, torch, torch.distributed as dist
for _ in range(600):
    try:
        socket.getaddrinfo(os.environ["MASTER_ADDR"], None); break
    except OSError:
        time.sleep(0.05)
dist.init_process_group("gloo")
value = torch.tensor([float(os.environ["OFFSET"]) + dist.get_rank()])
dist.all_reduce(value)
print("sum", value.item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    support.need_network()
    settings = PlaneSettings(state=tmp_path / "state", port=0, node=True, node_name="here", python=interpreter())
    try:
        async with Plane(settings) as running_plane:
            yield running_plane
    finally:
        await stop_pods(settings.state / "node")


async def start_job(client: Client, namespace: str, offset: int) -> None:
    """What the PyTorchJob controller makes: a headless service for the master, and a pod per rank."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for _ in range(3000):
        if await client.find(SERVICE_ACCOUNTS, "default", namespace):
            break
        await asyncio.sleep(0.02)
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [{"name": "c10d", "port": 23456}]}
    await client.create(
        SERVICES,
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mnist-master-0"}, "spec": service},
        namespace,
    )
    for rank in range(RANKS):
        env = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "mnist-master-0", "MASTER_PORT": "23456"}
        env |= {"OFFSET": str(offset), "OMP_NUM_THREADS": "1"}
        container = {
            "name": "pytorch",
            "image": "pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel",
            "command": ["python3", "-c", TRAIN],
            "env": [{"name": name, "value": value} for name, value in env.items()],
        }
        name = "mnist-master-0" if rank == 0 else f"mnist-worker-{rank - 1}"
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await client.create(PODS, pod, namespace)


async def publish(client: Client, namespace: str) -> None:
    """The endpoint-slice controller's part, once the master has its address."""
    for _ in range(600):
        master = await client.get(PODS, "mnist-master-0", namespace)
        address = (master.get("status") or {}).get("podIP")
        if address:
            break
        await asyncio.sleep(0.05)
    metadata = {"name": "mnist-master-0", "labels": {"kubernetes.io/service-name": "mnist-master-0"}}
    content = {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "c10d", "port": 23456}],
    }
    slice_ = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, **content}
    await client.create(ENDPOINT_SLICES, slice_, namespace)


async def finished(plane: Plane, client: Client, namespace: str) -> list[str]:
    """The last line of every rank."""
    last_lines = []
    streams = NodeStreams(plane.settings.state / "node" / "pods")
    for rank in range(RANKS):
        name = "mnist-master-0" if rank == 0 else f"mnist-worker-{rank - 1}"
        for _ in range(1800):
            pod = await client.get(PODS, name, namespace)
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                break
            await asyncio.sleep(0.1)
        text = b"".join([piece async for piece in streams.logs(pod, "pytorch", LogOptions())]).decode()
        assert pod["status"]["phase"] == "Succeeded", f"{namespace}/{name}: {pod['status']} {text}"
        last_lines.append(text.strip().splitlines()[-1])
    return last_lines


async def test_two_jobs_with_equal_names_and_ports_run_at_once(plane: Plane) -> None:
    client = plane.client("test")
    jobs = {"team-a": 0, "team-b": 100}
    for namespace, offset in jobs.items():
        await start_job(client, namespace, offset)
    await asyncio.gather(*(publish(client, namespace) for namespace in jobs))
    assert await finished(plane, client, "team-a") == ["sum 6.0 of 4"] * RANKS
    assert await finished(plane, client, "team-b") == ["sum 406.0 of 4"] * RANKS


@pytest.mark.timeout(600)
def test_an_ordinary_user_runs_the_same_two_jobs() -> None:
    with tempfile.TemporaryDirectory(prefix="yard-") as directory:  # others may not look into pytest's own
        Path(directory).chmod(0o755)
        this = f"{Path(__file__).relative_to(ROOT)}::{test_two_jobs_with_equal_names_and_ports_run_at_once.__name__}"
        ordinary.rerun(Path(directory), this, training=interpreter())
