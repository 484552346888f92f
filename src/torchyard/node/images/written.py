"""What a RUN instruction wrote: from the upper directories of its overlays into the layer that is built."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.node.images import tree
from torchyard.node.shim import beneath

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import RootfsStep


class WrittenTree:
    """Merges into one layer. `steps` are those of the sandbox, `lower` the trees below the layer."""

    def __init__(self, layer: Path, *, steps: Collection[RootfsStep], lower: Collection[Path]) -> None:
        self._layer, self._lower = layer, lower
        self._links = {step["target"].strip("/"): step["goal"] for step in steps if step["op"] == "link"}
        self._stubs = _with_parents(step["target"].strip("/") for step in steps)

    def merge(self, upper: Path, path: str) -> None:
        """Merge an upper directory that was mounted at `path` of the container."""
        with tree.opened(self._layer) as root:
            target = beneath.make_directories(root, path, in_root=True)
            below = os.open(f"/proc/self/fd/{target}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with tree.opened(upper) as source:
                    self._merge(source, below, path.strip("/"))
                    os.fchmod(below, stat.S_IMODE(os.fstat(source).st_mode))
            finally:
                os.close(below)
                os.close(target)

    def _merge(self, source: int, target: int, path: str) -> None:
        for name in sorted(os.listdir(source)):
            where = f"{path}/{name}" if path else name
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self._merge_directory(name, source, target, where)
            elif tree.is_whiteout(status):
                self._remove(name, target, where)
            elif stat.S_ISFIFO(status.st_mode):
                tree.remove(name, target)
                os.mkfifo(name, stat.S_IMODE(status.st_mode), dir_fd=target)
            elif not stat.S_ISSOCK(status.st_mode) and not self._is_stub(name, source, where, status):
                tree.copy_file(name, source, name, target, path=f"/{where}")

    def _is_stub(self, name: str, source: int, where: str, status: os.stat_result) -> bool:
        """Whether the sandbox created it: a mount point or a link, and the command left it as it was."""
        if stat.S_ISLNK(status.st_mode):
            return where in self._links and os.readlink(name, dir_fd=source) == self._links[where]
        return where in self._stubs and status.st_size == 0

    def _merge_directory(self, name: str, source: int, target: int, where: str) -> None:
        is_new = tree.make_directory(name, target)
        with tree.opened(name, source) as below, tree.opened(name, target) as copy:
            if tree.is_opaque(below):
                for entry in sorted(os.listdir(copy)):  # noqa: PTH208 - a descriptor
                    tree.remove(entry, copy)
                if self._is_below(where):
                    os.setxattr(copy, tree.OPAQUE, b"y")
            self._merge(below, copy, where)
            os.fchmod(copy, stat.S_IMODE(os.fstat(below).st_mode))
            is_stub = is_new and where in self._stubs and not os.listdir(copy)  # noqa: PTH208 - a descriptor
        if is_stub:
            os.rmdir(name, dir_fd=target)

    def _remove(self, name: str, target: int, where: str) -> None:
        """Remove a file from the layer; what a lower layer has is hidden by a whiteout."""
        tree.remove(name, target)
        if self._is_below(where):
            os.mknod(name, stat.S_IFCHR, dir_fd=target)

    def _is_below(self, path: str) -> bool:
        return any(os.path.lexists(lower / path) for lower in self._lower)


def _with_parents(targets: Iterable[str]) -> set[str]:
    paths: set[str] = set()
    for target in targets:
        parts = target.split("/")
        paths |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return paths
