"""A node whose disk has no free bytes or no free inodes: pods run on, nothing is lost, and it recovers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.node.conftest import RunningNode, running_node
from tests.node.support import need_sandbox

from torchyard.api.gvr import EVENTS, NODES

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT, INODES = "24m", "3000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningNode]:
    """A node whose directory is a small file system of its own."""
    need_sandbox()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    state = tmp_path_factory.mktemp("full") / "state"
    (state / "node").mkdir(parents=True)
    options = f"size={LIMIT},nr_inodes={INODES},mode=700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(state / "node")], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode()}")
    try:
        async with running_node(state) as running:
            agent = running.plane.agent
            assert agent
            agent._settings = replace(agent._settings, heartbeat_seconds=0.2)
            yield running
    finally:
        subprocess.run(["umount", "-l", str(state / "node")], check=False)


def fill_bytes(directory: Path) -> None:
    with (directory / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def fill_inodes(directory: Path) -> None:
    fillers = directory / "fillers"
    fillers.mkdir()
    for number in range(1_000_000):
        try:
            (fillers / str(number)).touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return


def clear(directory: Path) -> None:
    subprocess.run(["rm", "-rf", str(directory / "filler"), str(directory / "fillers")], check=True)


async def wait_for_pressure(node: RunningNode, value: str) -> None:
    for _ in range(1500):
        conditions = (await node.client.get(NODES, node.name))["status"]["conditions"]
        if {"DiskPressure": value}.items() <= {entry["type"]: entry["status"] for entry in conditions}.items():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(conditions)


async def has_failed(node: RunningNode, name: str) -> None:
    for _ in range(1500):
        texts = " ".join((await node.messages(name)).values())
        if "No space left on device" in texts:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(await node.messages(name))


@pytest.mark.parametrize("fill", [fill_bytes, fill_inodes])
async def test_a_full_disk_stops_no_pod_and_is_reported(node: RunningNode, fill: Callable[[Path], None]) -> None:
    name, directory = fill.__name__.replace("_", "-"), node.plane.settings.state / "node"
    talk = "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.1; done"
    await node.script(f"{name}-talks", talk)
    await node.script(f"{name}-ends", "sleep 3; exit 7")
    for pod in ("talks", "ends"):
        await node.phase(f"{name}-{pod}", "Running")
    fill(directory)
    await node.script(f"{name}-late", "echo started")
    await wait_for_pressure(node, "True")
    await has_failed(node, f"{name}-late")
    await asyncio.sleep(3)  # one container ends, the other one talks, while nothing can be written
    assert (await node.phase(f"{name}-talks", "Running"))["status"]["containerStatuses"][0]["restartCount"] == 0
    clear(directory)
    ended = await node.phase(f"{name}-ends", "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    await node.phase(f"{name}-late", "Succeeded", seconds=60)
    await wait_for_pressure(node, "False")
    lines = (await node.log(f"{name}-talks")).splitlines()
    running = await node.get(f"{name}-talks")
    assert running and running["status"]["phase"] == "Running"
    assert lines[0] == "line 0"
    last = int(lines[-1].split()[1])
    for _ in range(3000):
        if int((await node.log(f"{name}-talks")).splitlines()[-1].split()[1]) > last:
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("nothing is logged after the disk was cleared")
    events = (await node.client.list(EVENTS, "default")).items
    about_node = {event["reason"] for event in events if event["involvedObject"]["kind"] == "Node"}
    assert {"NodeHasDiskPressure", "NodeHasNoDiskPressure"} <= about_node
