"""One shared memory for all pods of a job: NCCL takes peers that have another one for another machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

_BASE = Path("/dev/shm")  # noqa: S108 - a file system of its own, and directories in it that only their owner enters


def directory_of(root: Path, group: str) -> Path | None:
    """The directory that the pods of a group see as /dev/shm, created if missing. `root` tells nodes apart."""
    if not _BASE.is_dir():
        return None
    path = _path(root, group)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o1777)
    return path


def remove(root: Path, group: str) -> None:
    path = _path(root, group)
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()  # fails while other groups have a directory in it


def _path(root: Path, group: str) -> Path:
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return _BASE / f"torchyard-{os.getuid()}-{digest}" / group
