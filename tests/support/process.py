"""Child processes of a test: they log to a file, end with the test session, and show the end of the log on failure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

# The kernel kills the child when the test session ends, however it ends.
_TIED = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def free_port() -> int:
    """Return a loopback port that is not in use."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One running program. It ends even after `kill -9` of the test session, if the machine has setpriv."""

    def __init__(self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = Path(command[0]).name
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [*_TIED, *(str(word) for word in command)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(
        self, ready: Callable[[], bool], description: str, seconds: float = 60, *, pause: float = 0.05
    ) -> None:
        """Return when `ready()` is true; fail at once when the program has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.running:
                raise RuntimeError(f"{self.name} ended with {self._child.returncode}:\n{self.log_tail()}")
            try:
                if ready():
                    return
            except OSError:
                pass
            time.sleep(pause)
        raise TimeoutError(f"{self.name}: {description} did not happen in {seconds:.0f} s:\n{self.log_tail()}")

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """Send SIGTERM and wait; after ten seconds send SIGKILL."""
        if self.running:
            self._child.terminate()
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
