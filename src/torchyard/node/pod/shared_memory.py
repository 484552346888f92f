"""One shared memory for all pods of a job: NCCL takes peers that have another one for another machine."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from torchyard import files
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.pod.environment import CreateContainerConfigError

BASE = Path("/dev/shm")  # noqa: S108 - a file system of its own, and directories in it that only their owner enters
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def directory_of(root: Path, group: str) -> Path | None:
    """The directory that the pods of a group see as /dev/shm, created if missing. `root` tells nodes apart."""
    if not BASE.is_dir():
        return None
    path = _path(root, group)
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    with _own_directory(path.parent) as parent:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=parent)
        descriptor = os.open(path.name, _DIRECTORY, dir_fd=parent)
        try:
            os.fchmod(descriptor, 0o1777)
        finally:
            os.close(descriptor)
    return path


def remove(root: Path, group: str) -> None:
    path = _path(root, group)
    with contextlib.suppress(FileNotFoundError, CreateContainerConfigError), _own_directory(path.parent) as parent:
        files.remove_tree(path.name, directory=parent)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # fails while other groups have a directory in it


@contextlib.contextmanager
def _own_directory(path: Path) -> Iterator[int]:
    """The node's directory, open. Anybody may create files in /dev/shm, also a link or a directory of this name."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise CreateContainerConfigError(messages.shared_memory_taken(path)) from None
        raise
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise CreateContainerConfigError(messages.shared_memory_taken(path))
        yield descriptor
    finally:
        os.close(descriptor)


def _path(root: Path, group: str) -> Path:
    """By digest: the uid of an owner is whatever the creator of the pod wrote."""
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return BASE / f"torchyard-{os.getuid()}-{digest}" / hashlib.sha256(group.encode()).hexdigest()[:32]
