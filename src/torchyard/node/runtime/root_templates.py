"""The part of a mapped image's root that is the same for all containers, prepared once: the lowest layer of the root.

It has the machine's files of /etc, as copies, the links, and the directories that something is mounted on. Without it
each container would create some fifty files, and mount half of them, which takes longer than the rest of its start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard import files

_DIRECTORY = "root-templates"  # of the node
_MAX_FILE_BYTES = 1 << 20  # larger files are mounted
Version = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class RootContent:
    """What a root consists of before something is mounted. Paths are relative to it."""

    copies: Mapping[str, str]  # a file → the file of the machine that it is a copy of
    links: Mapping[str, str]
    directories: Mapping[str, int]  # → their mode
    mount_points: tuple[str, ...] = ()  # empty files

    def create(self, root: Path) -> None:
        """Create everything in an empty directory."""
        for name, mode in self._all_directories():
            (root / name).mkdir()
            (root / name).chmod(mode)
        for name, goal in self.links.items():
            (root / name).symlink_to(goal)
        for name in self.mount_points:
            (root / name).touch()
            (root / name).chmod(0o644)
        for name, source in self.copies.items():
            with contextlib.suppress(FileNotFoundError):  # removed from the machine since
                (root / name).write_bytes(Path(source).read_bytes())
                (root / name).chmod(stat.S_IMODE(Path(source).stat().st_mode) & 0o755)

    def _all_directories(self) -> list[tuple[str, int]]:
        """Those that are named, and their parents before them."""
        modes: dict[str, int] = {}
        for name in (*self.directories, *(name.rpartition("/")[0] for name in (*self.copies, *self.mount_points))):
            parts = name.split("/") if name else []
            modes |= {"/".join(parts[:count]): 0o755 for count in range(1, len(parts) + 1)}
        return sorted({**modes, **self.directories}.items())

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


class RootTemplates:
    """The templates of a node. A changed file of the machine leads to a new one; containers keep the one they have."""

    def __init__(self, root: Path) -> None:
        self._base = root / _DIRECTORY
        self._current: dict[RootContent, tuple[list[Version | None], Path]] = {}

    def path(self, content: RootContent) -> Path:
        """The template with this content, as the machine's files are now."""
        versions = content.versions()
        known, path = self._current.get(content, (None, self._base))
        if known != versions or not path.is_dir():
            described = [versions, dict(content.copies), dict(content.links), dict(content.directories)]
            digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
            path = self._base / digest[:32]
            if not path.is_dir():
                self._create(path, content)
            self._current[content] = versions, path
        return path

    def _create(self, path: Path, content: RootContent) -> None:
        draft = path.with_suffix(f".{os.getpid()}")
        files.remove_tree(draft)
        self._base.mkdir(mode=0o700, exist_ok=True)
        draft.mkdir()
        draft.chmod(0o755)
        content.create(draft)
        try:
            draft.rename(path)
        except OSError:
            if not path.is_dir():
                raise
            files.remove_tree(draft)  # another process was faster

    def remove_unused(self, configs: Iterable[Path]) -> None:
        """Remove the templates that the configs of containers do not mention."""
        names = {path.name for path in self._base.iterdir()} if self._base.is_dir() else set[str]()
        for config in configs if names else ():
            text = config.read_text()
            names = {name for name in names if name not in text}
        for name in names:
            files.remove_tree(self._base / name)
