"""One shared memory for all pods of a job: NCCL takes peers with another one for another machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

_BASE = Path("/dev/shm")  # noqa: S108 - a file system of its own, and directories in it that only their owner enters


def of_group(root: Path, group: str) -> Path | None:
    """The directory shown as /dev/shm to the pods of a group, made if missing. `root` tells nodes apart."""
    if not _BASE.is_dir():
        return None
    path = _place(root, group)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o1777)
    return path


def remove(root: Path, group: str) -> None:
    path = _place(root, group)
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()  # the last one puts out the light


def _place(root: Path, group: str) -> Path:
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return _BASE / f"torchyard-{os.getuid()}-{digest}" / group
