"""fsGroup: gives the files of a volume to a group (the kubelet's SetVolumeOwnership).

Files are opened one below the other and never through a link: other pods may write to the same volume meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

_MAX_DEPTH = 200
_READ_WRITE, _READ_ONLY, _ENTER = 0o660, 0o440, 0o110
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FsGroup:
    """The group of a pod's volumes. With `on_root_mismatch` a volume whose top directory fits is left alone."""

    gid: int
    on_root_mismatch: bool = False

    def apply(self, volume: Path, *, read_only: bool) -> None:
        """Raises OSError where the group must not be set, for example for an ordinary user."""
        root = os.open(volume, _DIRECTORY)
        try:
            info = os.fstat(root)
            if self.on_root_mismatch and not self._is_changed(info, _directory_mode(info, read_only=read_only)):
                return
            self._change_below(root, read_only=read_only)
            # last, so that a change that was interrupted is seen and repeated
            self._change_directory(root, read_only=read_only)
        finally:
            os.close(root)

    def _is_changed(self, info: os.stat_result, mode: int) -> bool:
        return info.st_gid != self.gid or stat.S_IMODE(info.st_mode) != mode

    def _change_directory(self, directory: int, *, read_only: bool) -> None:
        info = os.fstat(directory)
        mode = _directory_mode(info, read_only=read_only)
        if self._is_changed(info, mode):
            os.fchown(directory, -1, self.gid)
            os.fchmod(directory, mode)

    def _change_below(self, top: int, *, read_only: bool, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise OSError(errno.ELOOP, f"directories are nested more than {_MAX_DEPTH} levels deep")
        for name in os.listdir(top):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                info = os.stat(name, dir_fd=top, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    directory = os.open(name, _DIRECTORY, dir_fd=top)
                    try:
                        self._change_below(directory, read_only=read_only, depth=depth + 1)
                        self._change_directory(directory, read_only=read_only)
                    finally:
                        os.close(directory)
                elif stat.S_ISREG(info.st_mode):
                    self._change_file(name, top, read_only=read_only)
                else:
                    os.chown(name, -1, self.gid, dir_fd=top, follow_symlinks=False)

    def _change_file(self, name: str, directory: int, *, read_only: bool) -> None:
        file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            info = os.fstat(file)
            mode = stat.S_IMODE(info.st_mode) | (_READ_ONLY if read_only else _READ_WRITE)
            if not stat.S_ISREG(info.st_mode) or not self._is_changed(info, mode):
                return
            # an O_PATH file has no fchown of its own; its entry in /proc leads to this very file
            os.chown(f"/proc/self/fd/{file}", -1, self.gid)
            os.chmod(f"/proc/self/fd/{file}", mode)
        finally:
            os.close(file)


def _directory_mode(info: os.stat_result, *, read_only: bool) -> int:
    return stat.S_IMODE(info.st_mode) | stat.S_ISGID | _ENTER | (_READ_ONLY if read_only else _READ_WRITE)
