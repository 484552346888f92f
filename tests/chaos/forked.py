"""`yard up` that starts in a moment: its modules are loaded once, and every start is a fork of that."""

from __future__ import annotations

import multiprocessing
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.yard.process import run
from torchyard.yard.settings import Settings

_LOADED = ["torchyard.yard.plane", "torchyard.yard.process", "tests.chaos.forked"]


def _serve(state: Path, port: int, controllers: str, node: bool) -> None:
    run(Settings(state=state, port=port, controllers=controllers, node=node), lambda _url: None)


class ForkedYard(Yard):
    """For tests that kill a plane hundreds of times; everything else about it is the same."""

    child: BaseProcess | None = None

    def start(self) -> Server:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        self.directory.mkdir(parents=True, exist_ok=True)
        told = (self.state, self.port, self.controllers, "--node" in self.flags)
        self.child = context.Process(target=_serve, args=told, daemon=True)
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
