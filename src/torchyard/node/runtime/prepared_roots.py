"""The root directories of mapped images, prepared before a container needs one.

A root has the machine's small files of /etc, as copies, the links, and the directories that something is mounted on:
some fifty files, which take longer to create than the rest of a container's start. A few roots are kept in stock, and
a container gets one by a rename.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import stat
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard import files

log = logging.getLogger(__name__)

_DIRECTORY = "roots"  # of the node
_STOCK = 4  # as many as there are spare shims
_MAX_FILE_BYTES = 8 << 10  # the rest is mounted: a copy counts as what the container has written
Version = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class RootContent:
    """What a root consists of before something is mounted. Paths are relative to it."""

    copies: Mapping[str, str]  # a file → the file of the machine that it is a copy of
    links: Mapping[str, str]
    directories: Mapping[str, int]  # → their mode
    mount_points: tuple[str, ...] = ()  # empty files

    def create(self, root: Path) -> None:
        """Create everything that is missing in `root`."""
        for name, mode in self.directories.items():
            _make_directories(root, name).chmod(mode)
        for name, goal in self.links.items():
            with contextlib.suppress(FileExistsError):
                (root / name).symlink_to(goal)
        for name in self.mount_points:
            _write(root / name, b"", 0o644)
        for name, source in self.copies.items():
            with contextlib.suppress(FileNotFoundError):  # removed from the machine since
                content, mode = Path(source).read_bytes(), stat.S_IMODE(Path(source).stat().st_mode)
                parent, _, last = name.rpartition("/")
                _write(_make_directories(root, parent) / last, content, mode & 0o755)

    def versions(self) -> list[Version | None]:
        """Changes whenever a file of the machine does that is copied."""
        return [_version(source) for source in self.copies.values()]


def is_copied(source: str) -> bool:
    """Whether roots have a copy of this file of the machine: a small one that this user can read."""
    try:
        status = Path(source).stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE_BYTES and os.access(source, os.R_OK)


def _version(source: str) -> Version | None:
    try:
        status = Path(source).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _make_directories(root: Path, name: str) -> Path:
    """As makedirs with mode 755, whatever the umask is."""
    directory = root / name
    if not directory.is_dir():
        if "/" in name:
            _make_directories(root, name.rpartition("/")[0])
        directory.mkdir()
        directory.chmod(0o755)
    return directory


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


class PreparedRoots:
    """The stock of a node."""

    def __init__(self, root: Path) -> None:
        self._base = root / _DIRECTORY
        self._refilling: asyncio.Task[None] | None = None
        self._stock: dict[RootContent, deque[tuple[Path, list[Version | None]]]] = {}
        self._numbers = itertools.count()
        files.remove_tree(self._base)  # the stock of an earlier agent

    def take(self, content: RootContent, target: Path) -> None:
        """Make `target` a root: one from the stock, or a new one."""
        stock = self._stock.setdefault(content, deque())
        target.parent.mkdir(parents=True, exist_ok=True)
        versions = content.versions()
        while stock and not target.exists():
            path, its_versions = stock.popleft()
            if its_versions == versions:
                path.rename(target)
                return
        target.mkdir(exist_ok=True)
        content.create(target)

    def refill_later(self) -> None:
        """Refill the stock in a thread, when a container has been started."""
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill_in_thread())

    async def _refill_in_thread(self) -> None:
        try:
            await asyncio.to_thread(self.refill)
        except OSError as error:  # the disk is full, for example: a container that needs a root reports it
            log.warning("no root directories in stock: error=%r", str(error))

    def refill(self) -> None:
        """Create what is missing of the stock. Takes milliseconds for each root."""
        for content, stock in tuple(self._stock.items()):
            while len(stock) < _STOCK:
                versions = content.versions()
                path = self._base / str(next(self._numbers))
                self._base.mkdir(mode=0o700, exist_ok=True)
                path.mkdir()
                path.chmod(0o755)
                content.create(path)
                stock.append((path, versions))
