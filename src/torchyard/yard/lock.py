"""One plane per state directory: a file lock that ends with its process, and records which process holds it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from torchyard.api.errors import YardError


@dataclass(frozen=True, slots=True)
class PlaneProcess:
    """The process that runs the plane, and its URL once it serves."""

    pid: int
    url: str = ""
    started: str = ""
    node: str = ""  # the name of its node; empty: none


class AlreadyRunning(YardError):
    code = "AlreadyRunning"

    def __init__(self, state: Path, holder: PlaneProcess | None) -> None:
        where = f" at {holder.url}" if holder and holder.url else ""
        process = f" (process {holder.pid})" if holder else ""
        super().__init__(
            f"a plane is already running on {state}{where}{process}",
            hint="use it, stop it with `yard down`, or choose another --state directory",
        )
        self.holder = holder


class StateLock:
    """The kernel holds the lock as long as the process lives, so that `kill -9` leaves nothing to clean up."""

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
        """Record the process that holds the lock, for `yard status`."""
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(asdict(holder)).encode(), 0)
        except OSError as error:  # the disk is full
            raise YardError(
                f"cannot write {self._path}: {error.strerror}", hint="free disk space there", code="BadState"
            ) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def read_process(path: Path) -> PlaneProcess | None:
    """The process in the lock file; None if the file has none."""
    try:
        return PlaneProcess(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def running(path: Path) -> PlaneProcess | None:
    """The process that currently holds the lock; None if the lock is free, whatever the file says."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = "ask its owner, or name another state directory with --state"
        raise YardError(
            f"cannot determine whether a plane runs on {path.parent}: {error.strerror}", hint=hint, code="BadState"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_process(path) or PlaneProcess(0)
    finally:
        os.close(descriptor)
    return None
