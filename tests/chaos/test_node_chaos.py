"""Agent, API server, zygote and shims are killed at random under twenty pods: nothing is lost, duplicated or left
behind.

The agent runs in a separate process, so that it and the API server can be killed separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.chaos.forked import ForkedAgent, ForkedYard
from tests.node import support
from tests.support.effort import rounds
from tests.support.process import free_port

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.node.shim import records
from torchyard.node.shutdown import stop_pods

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(rounds(300, 5400))]

Object = dict[str, Any]
T = TypeVar("T")
PODS_AT_ONCE = rounds(8, 20)
KILLS = rounds(5, 200)
SPARE = ("yard-spare",)
KILLS_IN_A_ROW = 5
LINES = 50
NODE = "here"


@dataclass
class Machine:
    """An API server, and a node agent next to it."""

    server: ForkedYard
    agent: ForkedAgent
    shot: set[str] = field(default_factory=set)  # uids of pods whose shim was killed
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def root(self) -> Path:
        """The node's own state."""
        return self.agent.root

    def running_pods(self) -> int:
        return sum(_is_running(home) for home in (self.root / "pods").glob("*"))

    async def kill_agent(self, _: random.Random) -> bool:
        self.agent.kill()
        self.agent.start()
        return True

    async def kill_server(self, _: random.Random) -> bool:
        self.server.kill()
        # on a busy machine this takes time; callers retry
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(self.server.start)
        return True

    async def kill_zygote(self, _: random.Random) -> bool:
        return _shoot(self.root / "zygote.lock", self.root)

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
        """Kill a random process; one that does not exist does not count."""
        while True:
            name = rng.choices(("agent", "server", "zygote", "shim"), weights=(35, 15, 15, 35))[0]
            if await getattr(self, f"kill_{name}")(rng):
                self.kills[name] += 1
                return
            await asyncio.sleep(0.05)


def _shoot(lock: Path, root: Path) -> bool:
    """Kill the process that the lock file names, if it still runs."""
    try:
        pid = int(lock.read_text())
        # the process id may have been reused
        if str(root).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    support.need_sandbox()
    server = ForkedYard(tmp_path / "yard", controllers="*", port=free_port())
    agent = ForkedAgent(tmp_path / "node", NODE, server.kubeconfig, support.machine())
    try:
        server.start()
        agent.start()
        yield Machine(server, agent)
    finally:
        agent.kill()
        server.stop()
        asyncio.run(stop_pods(agent.root))


def pod(number: int, marks: Path) -> Object:
    """Leaves a file per start, prints numbered lines, and exits with its own code."""
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
    """Repeat a request while the server does not respond."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except YardError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def _create(client: Client, wanted: Object) -> None:
    """Create once, even if the response to the first request was lost."""
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


def _over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


async def test_no_pod_is_lost_or_started_twice_whichever_process_is_killed(machine: Machine, tmp_path: Path) -> None:
    rng = random.Random(23)  # the first five kills of which hit each kind
    begun = time.monotonic()
    marks = tmp_path / "marks"
    marks.mkdir(mode=0o777)
    transport = HttpTransport(kubeconfig.load(machine.server.kubeconfig), user_agent="chaos")
    client = Client(transport, manager="chaos")
    created, judged = 0, set[str]()
    while sum(machine.kills.values()) < KILLS:
        pods = await _list(client)
        await _dismiss(machine, client, pods, marks=marks, judged=judged)
        for _ in range(PODS_AT_ONCE - sum(not _over(pod) for pod in pods)):
            wanted = pod(created, marks)
            await patiently(partial(_create, client, wanted))
            created += 1
        # otherwise repeated kills would only hit an agent that is starting
        if machine.running_pods() < PODS_AT_ONCE / 2:
            await asyncio.sleep(0.1)
            continue
        for _ in range(KILLS_IN_A_ROW):
            await asyncio.sleep(rng.uniform(0.0, 0.4))
            await machine.kill(rng)
    end = time.monotonic() + 300
    while len(judged) < created:
        pods = await _list(client)
        assert time.monotonic() < end, f"{created} pods were made, {len(judged)} ended; there are {pods}"
        await _dismiss(machine, client, pods, marks=marks, judged=judged)
        await asyncio.sleep(0.2)
    print(f"{created} pods; killed: {dict(machine.kills)}; {time.monotonic() - begun:.0f} s")
    await _nothing_left(machine, marks)
    assert max(_starts(marks).values()) == 1, "nothing was started after its end"
    await transport.close()


async def _dismiss(machine: Machine, client: Client, pods: list[Object], *, marks: Path, judged: set[str]) -> None:
    """Check and delete every pod that has ended, so that kills also hit deletions."""
    for pod in pods:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if _over(pod) and uid not in judged:
            _judge(machine, pod, _starts(marks)[name.removeprefix("p")])
            judged.add(uid)
            await patiently(partial(_delete, client, name))


def _starts(marks: Path) -> Counter[str]:
    """How often the container of each pod was started."""
    return Counter(mark.name.partition("-")[0] for mark in marks.iterdir())


def _is_running(home: Path) -> bool:
    known = records.read(records.record_path(str(home), "main", 0))
    return bool(known and known["state"] == records.RUNNING)


def _judge(machine: Machine, ended: Object, starts: int) -> None:
    number, uid = ended["metadata"]["name"].removeprefix("p"), ended["metadata"]["uid"]
    code = ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    log = machine.root / "pods" / uid / "containers" / "main" / "0.log"
    lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
    numbers = [int(line) for line in lines if line.isdigit()]
    assert numbers == list(range(1, len(numbers) + 1)), f"p{number}: lines are missing or out of order"
    if uid in machine.shot:
        # it may have been killed before the container started, or after it had ended
        assert starts <= 1, f"p{number} was started twice"
        assert code in (137, int(number) % 7)
    else:
        assert starts == 1, f"p{number} was started {starts} times"
        assert code == int(number) % 7, f"p{number} lost its exit code"
        assert len(numbers) == LINES, f"p{number} lost lines"


async def _nothing_left(machine: Machine, marks: Path) -> None:
    """No container, directory or process of the node remains, except its zygote, namespace holder and spare shims.

    A spare shim has a child that will map the ids of its pod.
    """
    end = time.monotonic() + 60
    while time.monotonic() < end:
        containers = support.processes_with(f": {marks}")
        own = [pid for pid in support.processes_with(str(machine.root)) if support.name_of(pid) not in SPARE]
        homes = list((machine.root / "pods").glob("*"))
        if not containers and not homes and len(own) <= 2:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"left: containers {containers}, shims {own}, directories {homes}")
