"""Agent, API server, keeper and shims killed at random under twenty pods: nothing lost, nothing twice, nothing left.

The agent runs in a process of its own here, so that it and the API server can be killed apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.node import support
from tests.support.effort import rounds
from tests.support.kubernetes import ROOT
from tests.support.process import Process
from tests.support.yard import Yard

from torchyard.api.errors import StatusError, YardError
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.refs import PODS
from torchyard.node.shim import record
from torchyard.node.shutdown import stop_pods

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(rounds(300, 5400))]

Object = dict[str, Any]
T = TypeVar("T")
PODS_AT_ONCE = rounds(8, 20)
KILLS = rounds(5, 200)
KILLS_IN_A_ROW = 5
LINES = 50
NODE = "here"


@dataclass
class Machine:
    """An API server, and a node agent beside it."""

    server: Yard
    root: Path  # the node's own state
    agent: Process | None = None
    shot: set[str] = field(default_factory=set)  # uids of pods whose shim was killed
    kills: Counter[str] = field(default_factory=Counter)

    def start_agent(self) -> None:
        command = [sys.executable, "-m", "torchyard.node", "--root", str(self.root), "--name", NODE]
        environment = {"PYTHONPATH": str(ROOT / "src")}
        self.agent = Process(
            [*command, "--kubeconfig", str(self.server.kubeconfig)], self.root.parent / "agent.log", environment
        )

    def running_pods(self) -> int:
        return sum(_is_running(home) for home in (self.root / "pods").glob("*"))

    async def kill_agent(self, _: random.Random) -> bool:
        assert self.agent
        self.agent.kill()
        self.start_agent()
        return True

    async def kill_server(self, _: random.Random) -> bool:
        self.server.kill()
        # on a busy machine it takes its time; whoever asks then asks again
        with contextlib.suppress(TimeoutError):
            await asyncio.to_thread(self.server.start)
        return True

    async def kill_keeper(self, _: random.Random) -> bool:
        return _shoot(self.root / "keeper.lock", self.root)

    async def kill_shim(self, rng: random.Random) -> bool:
        running = [home for home in (self.root / "pods").glob("*") if _is_running(home)]
        homes = [home for home in running if home.name not in self.shot]
        if not homes:
            return False
        home = rng.choice(homes)
        if not _shoot(home / "shim.lock", self.root):
            return False
        self.shot.add(home.name)
        return True

    async def kill(self, rng: random.Random) -> None:
        """Whoever it hits; what is not there to be killed does not count."""
        while True:
            name = rng.choices(("agent", "server", "keeper", "shim"), weights=(35, 15, 15, 35))[0]
            if await getattr(self, f"kill_{name}")(rng):
                self.kills[name] += 1
                return
            await asyncio.sleep(0.05)


def _shoot(lock: Path, root: Path) -> bool:
    """Kill whoever holds the lock file, which names its holder: if that one has ended, nobody."""
    try:
        pid = int(lock.read_text())
        # the number may by now be somebody else's
        if str(root).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    support.need_sandbox()
    server = Yard(tmp_path / "yard")
    made = Machine(server, tmp_path / "node")
    with server:
        made.start_agent()
        yield made
        if made.agent:
            made.agent.kill()
    asyncio.run(stop_pods(made.root))


def pod(number: int, marks: Path) -> Object:
    """Leaves a mark per start, prints numbered lines, ends with a code of its own."""
    script = f"mktemp /marks/{number}-XXXXXX; for i in $(seq {LINES}); do echo $i; sleep 0.1; done; exit {number % 7}"
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", f": {marks}; {script}"],
        "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
    }
    spec = {
        "nodeName": NODE,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "marks", "hostPath": {"path": str(marks)}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}


async def patiently(work: Callable[[], Awaitable[T]], seconds: float = 120) -> T:
    """What was asked, asked again while nobody answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except YardError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def _create(client: Client, wanted: Object) -> None:
    """Once, also when the answer to the first request was lost."""
    try:
        await client.create(PODS, wanted, "default")
    except StatusError as failed:
        if failed.reason != "AlreadyExists":
            raise


async def _delete(client: Client, name: str) -> None:
    try:
        await client.delete(PODS, name, "default", grace=0)
    except StatusError as failed:
        if failed.status != 404:
            raise


async def _list(client: Client) -> list[Object]:
    listing = await patiently(lambda: client.list(PODS, "default"))
    return list(listing.items)


def _over(one: Object) -> bool:
    return (one.get("status") or {}).get("phase") in ("Succeeded", "Failed")


async def test_whoever_is_killed_no_pod_is_lost_or_started_twice(machine: Machine, tmp_path: Path) -> None:
    rng = random.Random(23)  # the first five kills of which hit each kind
    marks = tmp_path / "marks"
    marks.mkdir(mode=0o777)
    transport = HttpTransport(kubeconfig.load(machine.server.kubeconfig), user_agent="chaos")
    client = Client(transport, manager="chaos")
    made = 0
    while sum(machine.kills.values()) < KILLS:
        busy = sum(not _over(one) for one in await _list(client))
        for _ in range(PODS_AT_ONCE - busy):
            wanted = pod(made, marks)
            await patiently(lambda wanted=wanted: _create(client, wanted))  # type: ignore[misc]  # mypy on defaults
            made += 1
        # or else kills in a row would only ever hit an agent that is starting
        if machine.running_pods() < PODS_AT_ONCE / 2:
            await asyncio.sleep(0.1)
            continue
        for _ in range(KILLS_IN_A_ROW):
            await asyncio.sleep(rng.uniform(0.0, 0.4))
            await machine.kill(rng)
    ended = await _all_ended(client, made)
    print(f"{made} pods; killed: {dict(machine.kills)}")
    _judge(machine, ended, marks)
    for one in ended:
        name = one["metadata"]["name"]
        await patiently(lambda name=name: _delete(client, name))  # type: ignore[misc]  # mypy on defaults
    await _nothing_left(machine, marks)
    await transport.close()


def _is_running(home: Path) -> bool:
    known = record.read(record.record_path(str(home), "main", 0))
    return bool(known and known["state"] == record.RUNNING)


async def _all_ended(client: Client, count: int) -> list[Object]:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found = await _list(client)
        if len(found) == count and all(_over(one) for one in found):
            return found
        await asyncio.sleep(0.2)
    waiting = [(one["metadata"]["name"], one.get("status")) for one in found if not _over(one)]
    raise AssertionError(f"not all of {count} pods ended: {waiting}")


def _judge(machine: Machine, ended: list[Object], marks: Path) -> None:
    starts = Counter(mark.name.partition("-")[0] for mark in marks.iterdir())
    for one in ended:
        number, uid = one["metadata"]["name"].removeprefix("p"), one["metadata"]["uid"]
        code = one["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        log = machine.root / "pods" / uid / "containers" / "main" / "0.log"
        lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        numbers = [int(line) for line in lines if line.isdigit()]
        assert numbers == list(range(1, len(numbers) + 1)), f"p{number}: lines are missing or out of order"
        if uid in machine.shot:
            # it may have been killed before the container was started, or after it had ended
            assert starts[number] <= 1, f"p{number} was started twice"
            assert code in (137, int(number) % 7)
        else:
            assert starts[number] == 1, f"p{number} was started {starts[number]} times"
            assert code == int(number) % 7, f"p{number} lost its exit code"
            assert len(numbers) == LINES, f"p{number} lost lines"


async def _nothing_left(machine: Machine, marks: Path) -> None:
    """No container, no directory, no process of the node's but its keeper, its spare shims and its network's anchor."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        containers = _processes_with(f": {marks}")
        own = [pid for pid in _processes_with(str(machine.root)) if machine.agent and pid != machine.agent.pid]
        own = [pid for pid in own if _name_of(pid) != "yard-spare"]
        homes = list((machine.root / "pods").glob("*"))
        if not containers and not homes and len(own) <= 2:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"left: containers {containers}, shims {own}, directories {homes}")


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _processes_with(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found
