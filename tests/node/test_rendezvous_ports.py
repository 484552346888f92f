"""Two jobs that use the same port, on a machine that cannot give pods networks of their own."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode, running_node

from torchyard.api.gvr import CONFIG_MAPS, SERVICES
from torchyard.api.objects import Object
from torchyard.node.network import rendezvous_ports
from torchyard.node.runtime import machine_features


def container(**env: str) -> Object:
    return {"name": "main", "env": [{"name": name, "value": value} for name, value in env.items()]}


def test_rendezvous_ports_are_read_from_variables() -> None:
    torchrun = container(PET_RDZV_ENDPOINT="job-worker-0:29400", OTHER_PORT="81", PET_MASTER_PORT="")
    assert rendezvous_ports.requested([container(MASTER_PORT="23456", PET_MASTER_PORT="23456"), torchrun]) == [
        "23456",
        "29400",
    ]


def test_a_port_is_the_peers_or_the_requested_or_a_free_one() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        in_use = other.getsockname()[1]
        chosen = rendezvous_ports.choose([str(in_use), "7"], peers=[{"7": 4711}], others=[])
        assert chosen["7"] == 4711
        assert chosen[str(in_use)] != in_use
    assert rendezvous_ports.choose([str(in_use)], peers=[], others=[]) == {str(in_use): in_use}
    assert rendezvous_ports.choose([str(in_use)], peers=[], others=[{"1": in_use}])[str(in_use)] != in_use


def test_only_rendezvous_variables_are_rewritten() -> None:
    before = container(MASTER_PORT="23456", MASTER_ADDR="job-0", PET_RDZV_ENDPOINT="job-0:23456", WEB_PORT="23456")
    before["env"].append({"name": "MASTER_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})
    after = rendezvous_ports.rewrite(before, {"23456": 999}, lambda name: name == "job-0")
    assert [item.get("value") for item in after["env"]] == ["999", "127.0.0.1", "127.0.0.1:999", "23456", None]
    assert rendezvous_ports.rewrite(before, {}, lambda _: False) == before


MASTER = """
import os, socket, time
server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
for _ in range(2):
    link, _ = server.accept()
    link.sendall(os.environ["JOB"].encode())
    link.close()
"""
WORKER = """
import os, socket, time
end = time.time() + 60
while True:
    try:
        link = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=20)
        break
    except OSError:
        if time.time() > end: raise
        time.sleep(0.1)
print(link.recv(100).decode(), os.environ["MASTER_PORT"])
"""


@pytest.fixture(params=["sandbox without network", "plain process"])
async def node(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningNode]:
    """A node without features that this machine may have."""
    why = "disabled by the test"
    if request.param == "plain process":
        machine = dataclasses.replace(support.machine(), network_missing=why, sandbox_missing=why)
    else:
        support.need_sandbox()
        machine = dataclasses.replace(support.machine(), network_missing=why)
    monkeypatch.setattr(machine_features, "detect", lambda: machine)
    async with running_node(tmp_path / "state") as running:
        yield running


async def test_two_jobs_with_the_same_port_do_not_meet_and_get_an_event(node: RunningNode) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    for job in ("red", "blue"):
        await _make_job(node, job, port)
    for job in ("red", "blue"):
        for number in (1, 2):
            name = f"{job}-{number}"
            await node.until(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), seconds=90)
            output = (await node.log(name)).split()
            assert output[:1] == [job], f"{name} met another job: {output}"
            if job == "red":
                assert output[1] == str(port), "the port was free"
    assert "PortReplaced" not in await node.events("red-0")
    assert f"Port {port} is in use" in (await node.messages("blue-1"))["PortReplaced"]


async def _make_job(node: RunningNode, job: str, port: int) -> None:
    owner = await node.client.create(CONFIG_MAPS, {"metadata": {"name": job}}, "default")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": job, "uid": owner["metadata"]["uid"]}
    spec = {"clusterIP": "None", "selector": {"replica": f"{job}-0"}, "ports": [{"port": port}]}
    await node.client.create(SERVICES, {"metadata": {"name": f"{job}-0"}, "spec": spec}, "default")
    for _ in range(3000):  # the node knows the name before the pods start, as a job's controller sees to it
        assert node.plane.agent
        if any(service["metadata"]["name"] == f"{job}-0" for service in node.plane.agent.context.services("default")):
            break
        await asyncio.sleep(0.02)
    env = container(JOB=job, MASTER_ADDR=f"{job}-0", MASTER_PORT=str(port))["env"]
    for number, program in enumerate((MASTER, WORKER, WORKER)):
        command = {"name": "main", "image": "python:3", "command": ["python3", "-c", program], "env": env}
        await node.create(
            f"{job}-{number}",
            {"restartPolicy": "Never", "containers": [command]},
            labels={"replica": f"{job}-{number}"},
            ownerReferences=[{**reference, "controller": True}],
        )
