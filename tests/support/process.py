"""Child processes of a test: they log to a file, die with the test session, and say their last words when they fail."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

# The kernel ends the child when the test session goes away, however it goes.
_TIED = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def free_port() -> int:
    """A loopback port nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One running program. Even `kill -9` of the test session leaves none behind (where the machine has setpriv)."""

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

    def last_words(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = 60, *, pause: float = 0.05) -> None:
        """Returns when `ready()` is true; fails at once when the program has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.running:
                raise RuntimeError(f"{self.name} ended with {self._child.returncode}:\n{self.last_words()}")
            try:
                if ready():
                    return
            except OSError:
                pass
            time.sleep(pause)
        raise TimeoutError(f"{self.name}: {what} did not happen in {seconds:.0f} s:\n{self.last_words()}")

    def kill(self) -> None:
        """`kill -9`, as a crash test does it."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """Ask politely, then insist."""
        if self.running:
            self._child.terminate()
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
