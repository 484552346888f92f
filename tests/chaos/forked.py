"""`yard up` and a node's agent that start quickly: modules are imported once, and every start is a fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.kube import kubeconfig
from torchyard.kube.connect import open_client
from torchyard.node.agent import NodeAgent
from torchyard.node.runtime.machine_features import MachineFeatures
from torchyard.node.settings import NodeSettings
from torchyard.yard.process import run
from torchyard.yard.settings import PlaneSettings

_LOADED = ["torchyard.yard.plane", "torchyard.yard.process", "tests.chaos.forked"]


def _forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def _serve(state: Path, port: int, controllers: str, node: bool) -> None:
    run(PlaneSettings(state=state, port=port, controllers=controllers, node=node), lambda _url: None)


class ForkedYard(Yard):
    """For tests that kill a plane hundreds of times; otherwise the same."""

    child: BaseProcess | None = None

    def start(self) -> Server:
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = (self.state, self.port, self.controllers, "--node" in self.flags)
        self.child = _forking().Process(target=_serve, args=arguments, daemon=True)
        self.child.start()
        eventually(self._answers, "readiness", seconds=60)
        return self.server()

    def _answers(self) -> bool:
        try:
            return self._ready(newer_than=-1)
        except OSError:
            return False

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.join()

    def stop(self) -> None:
        if self.child is not None:
            self.child.terminate()
            self.child.join()


@dataclass
class ForkedAgent:
    """The agent of a node, on a machine that was inspected before."""

    root: Path
    name: str
    config: Path  # how to reach the API server
    machine: MachineFeatures
    child: BaseProcess | None = None

    def start(self) -> None:
        arguments = (self.root, self.name, self.config, self.machine)
        self.child = _forking().Process(target=_look_after_pods, args=arguments, daemon=True)
        self.child.start()

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.join()


def _look_after_pods(root: Path, name: str, config: Path, machine: MachineFeatures) -> None:
    settings = NodeSettings(root=root, name=name, python=sys.executable)

    async def serve() -> None:
        async with open_client(kubeconfig.load(config), "torchyard-node") as client:
            await NodeAgent(client, settings, machine=machine).run()

    asyncio.run(serve())
