"""What makes the pods of TrainJobs: our operator, or upstream's JobSet and Trainer managers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import psutil
from tests.support.kubernetes import Server
from tests.support.process import free_port

from bench.operator.process import Operator
from torchyard.api.gvr import NAMESPACES
from torchyard.kube.client import Client
from torchyard.operator.install import install
from torchyard.operator.settings import NAMESPACE

QPS = 5000


class Managers(Protocol):
    """The processes on one server."""

    name: str

    async def start(self, client: Client, server: Server, directory: Path) -> None: ...

    def processes(self) -> list[psutil.Process]: ...

    def stop(self) -> None: ...


class Ours:
    """The operator, without webhooks: on this rig the server cannot reach a Service."""

    name = "operator"

    async def start(self, client: Client, server: Server, directory: Path) -> None:
        await install(client, None, lambda _: None)
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self._operator = Operator(server.kubeconfig, directory / "operator.log")
        await self._operator.leads()

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._operator.pid)]

    def stop(self) -> None:
        self._operator.stop()


class Upstream:
    """JobSet, then Trainer, started by the program `start` of a directory with upstream's binaries and objects."""

    name = "upstream"

    def __init__(self, peers: Path) -> None:
        self._peers = peers
        self._directories: list[Path] = []

    async def start(self, client: Client, server: Server, directory: Path) -> None:
        for name in ("jobset", "trainer"):
            state = directory / name
            command: list[str | Path] = [self._peers / "start", name, "--kubeconfig", server.kubeconfig, "--dir", state]
            command += ["--qps", str(QPS), "--port", str(_free_ports(3))]
            await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
            self._directories.append(state)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(int((state / "pid").read_text())) for state in self._directories]

    def stop(self) -> None:
        for state in self._directories:
            subprocess.run([self._peers / "start", "stop", state], check=True)
        self._directories.clear()


def _free_ports(count: int) -> int:
    """The first of so many free ports in sequence: each manager takes the next ones for health and metrics."""
    while True:
        first = free_port()
        with ExitStack() as stack:
            try:
                for number in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            return first
