"""Plane, keeper and shims killed at random under twenty pods: nothing lost, nothing twice, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.support.yard import Yard

from torchyard.api.errors import YardError
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.node.refs import PODS
from torchyard.node.shim import record
from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.chaos

Object = dict[str, Any]
PODS_AT_ONCE = 20
KILLS = int(os.environ.get("TORCHYARD_CHAOS_KILLS", "200"))
LINES = 400


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Yard]:
    support.need_sandbox()
    made = Yard(tmp_path / "yard", flags=("--node", "--node-name", "here"))
    with made:
        yield made
    asyncio.run(stop_pods(made.state / "node"))


def pod(number: int, marks: Path) -> Object:
    """Leaves a mark per start, prints numbered lines, ends with a code of its own."""
    code = number % 7
    script = f"mktemp /marks/{number}-XXXXXX; for i in $(seq {LINES}); do echo $i; sleep 0.05; done; exit {code}"
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "marks", "hostPath": {"path": str(marks)}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}


async def patiently(work: Any, seconds: float = 60) -> Any:
    """What was asked, asked again while the plane is down."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except YardError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def test_random_kills_lose_nothing(plane: Yard, tmp_path: Path) -> None:
    rng = random.Random(7)
    marks = tmp_path / "marks"
    marks.mkdir(mode=0o777)
    transport = HttpTransport(kubeconfig.load(plane.kubeconfig), user_agent="chaos")
    client = Client(transport, manager="chaos")
    for number in range(PODS_AT_ONCE):
        made = pod(number, marks)
        await patiently(lambda made=made: client.create(PODS, made, "default"))
    shot: set[str] = set()
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.01, 0.1))
        if rng.random() < 0.06:
            plane.kill()
            # on a busy machine it takes its time; whoever asks then asks again
            with contextlib.suppress(TimeoutError):
                await asyncio.to_thread(plane.start)
        elif rng.random() < 0.5:
            _kill_keeper(plane.state / "node")
        else:
            uid = _kill_shim(plane.state / "node", rng)
            if uid:
                shot.add(uid)
    ended = await _all_ended(client)
    await transport.close()
    _judge(plane, ended, marks, shot)


def _kill_keeper(root: Path) -> None:
    _kill(root / "keeper.lock")


def _kill_shim(root: Path, rng: random.Random) -> str:
    running = [home for home in (root / "pods").iterdir() if _is_running(home)]
    # a few only: a killed shim takes its pod along, and the others are the ones to be judged
    if not running or rng.random() < 0.9:
        return ""
    home = rng.choice(running)
    _kill(home / "shim.lock")
    return home.name


def _is_running(home: Path) -> bool:
    known = record.read(record.record_path(str(home), "main", 0))
    return bool(known and known["state"] == record.RUNNING)


def _kill(lock: Path) -> None:
    try:
        os.kill(int(lock.read_text()), signal.SIGKILL)
    except (OSError, ValueError):
        return


async def _all_ended(client: Client) -> list[Object]:
    for _ in range(1800):
        listing = await patiently(lambda: client.list(PODS, "default"))
        phases = [(one.get("status") or {}).get("phase") for one in listing.items]
        if len(phases) == PODS_AT_ONCE and set(phases) <= {"Succeeded", "Failed"}:
            found: list[Object] = listing.items
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"not all pods ended: {phases}")


def _judge(plane: Yard, ended: list[Object], marks: Path, shot: set[str]) -> None:
    starts: dict[str, int] = {}
    for mark in marks.iterdir():
        number = mark.name.partition("-")[0]
        starts[number] = starts.get(number, 0) + 1
    for one in ended:
        number = one["metadata"]["name"].removeprefix("p")
        uid = one["metadata"]["uid"]
        assert starts.get(number, 0) == (1 if uid not in shot else starts.get(number, 0)), (
            "a container was started twice"
        )
        assert starts.get(number, 0) <= 1
        state = one["status"]["containerStatuses"][0]["state"]["terminated"]
        log = plane.state / "node" / "pods" / uid / "containers" / "main" / "0.log"
        lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        numbers = [int(line) for line in lines if line.isdigit()]
        assert numbers == list(range(1, len(numbers) + 1)), "lines are missing or out of order"
        if uid in shot:
            assert state["exitCode"] in (137, int(number) % 7)
        else:
            assert state["exitCode"] == int(number) % 7
            assert len(numbers) == LINES
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _mentions(path, str(LINES) + "); do echo")]


def _mentions(cmdline: Path, text: str) -> bool:
    try:
        return text.encode() in cmdline.read_bytes()
    except OSError:
        return False
