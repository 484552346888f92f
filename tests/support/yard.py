"""Our own server, started as a user starts it: `yard up` in its own process, with its own state directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.kubernetes import ROOT, Server, from_kubeconfig
from tests.support.process import Process

from torchyard.apiserver.store.log import Log


def yard(*arguments: str, state: Path, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run one `yard` command to its end; the caller checks the exit code."""
    return subprocess.run(
        [*_command(), *arguments, "--state", str(state)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **_environment()},
    )


def _command(*python: str) -> list[str]:
    return [*(python or (sys.executable,)), "-m", "torchyard.cli"]


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}


class Yard:
    """`yard up` in `directory`; a test can kill it and start it again on the same state."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: str = "",
        users: str = "",
        port: int = 0,
        flags: tuple[str, ...] = (),
        node: bool = False,
        python: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`node`: with a node that runs pods. `python` starts another interpreter, such as one of another user."""
        self.directory = directory
        self.state = directory / "state"
        self.log = directory / "yard.log"
        self.controllers = controllers
        self.users = users
        self.port = port
        self.flags = flags
        self.node = node
        self.python = python
        self.environment = dict(environment or {})
        self.process: Process | None = None

    def __enter__(self) -> Server:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def start(self) -> Server:
        """Start (again) and wait until it is ready. The port is kept from one start to the next."""
        before = self.kubeconfig.stat().st_mtime_ns if self.kubeconfig.exists() else 0
        process = self.launch()
        process.wait_until(lambda: self._ready(newer_than=before if self.port == 0 else -1), "readiness")
        server = self.server()
        self.port = int(server.url.rsplit(":", 1)[1])
        return server

    def launch(self) -> Process:
        """Start (again) without waiting until it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        node = () if self.node else ("--no-node",)  # before the flags, which may ask for one
        flags: list[str] = ["--state", str(self.state), "--port", str(self.port), *node, *self.flags]
        if self.controllers:
            flags += ["--controllers", self.controllers]
        if self.users:
            tokens = self.directory / "tokens.csv"
            tokens.write_text(self.users)
            flags += ["--token-auth-file", str(tokens)]
        environment = {**_environment(), **self.environment}
        self.process = Process([*_command(*self.python), "up", *flags], self.log, environment)
        return self.process

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """Kill the process without a chance to clean up."""
        if self.process is not None:
            self.process.kill()

    def forget_history(self) -> None:
        """Stop, compact the store, and start again."""
        self.stop()
        log = Log(self.state / "store.db")
        log.compact(log.last_revision())
        log.close()
        self.start()

    def _ready(self, *, newer_than: int) -> bool:
        if not self.kubeconfig.exists() or self.kubeconfig.stat().st_mtime_ns <= newer_than:
            return False
        return self.server().admin.get("/readyz").status == 200

    def server(self) -> Server:
        """Return the server that the kubeconfig describes."""
        return from_kubeconfig("yard", self.kubeconfig, self.directory)
