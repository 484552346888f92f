"""One plane per state directory: a lock that dies with its holder, and says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from torchyard.api.errors import YardError


@dataclass(frozen=True, slots=True)
class PlaneProcess:
    """The process that runs the plane, and where it answers (port 0: not yet)."""

    pid: int
    url: str = ""
    started: str = ""
    node: str = ""  # what its node is called; empty: it has none


class AlreadyRunning(YardError):
    code = "AlreadyRunning"

    def __init__(self, state: Path, holder: PlaneProcess | None) -> None:
        where = f" at {holder.url}" if holder and holder.url else ""
        who = f" (process {holder.pid})" if holder else ""
        super().__init__(
            f"a plane is already running on {state}{where}{who}",
            hint="use it, stop it with `yard down`, or choose another --state directory",
        )
        self.holder = holder


class StateLock:
    """Held by the kernel for as long as the process lives: after `kill -9` nothing needs to be cleaned up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def acquire(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunning(self._path.parent, read_process(self._path)) from None
        self._descriptor = descriptor
        self.write(PlaneProcess(os.getpid()))

    def write(self, holder: PlaneProcess) -> None:
        """Write down who holds the lock, for `yard status` and for people."""
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(asdict(holder)).encode(), 0)
        except OSError as error:  # the disk is full
            raise YardError(f"cannot write {self._path}: {error.strerror}", hint="make room there") from error

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def read_process(path: Path) -> PlaneProcess | None:
    """Who wrote the lock file, or None if it says nothing."""
    try:
        return PlaneProcess(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def running(path: Path) -> PlaneProcess | None:
    """The holder of a lock that is really held; None if nobody holds it, whatever the file says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = "ask its owner, or name another state directory with --state"
        raise YardError(f"cannot see whether a plane runs on {path.parent}: {error.strerror}", hint=hint) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_process(path) or PlaneProcess(0)
    finally:
        os.close(descriptor)
    return None
