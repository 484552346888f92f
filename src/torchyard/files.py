"""Files that pods have written: removed and read without following their links, however they are made."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BATCH = 1000


def remove_tree(path: Path | str, *, directory: int | None = None) -> None:
    """Remove a file or a directory with all that it contains; nothing happens if it does not exist.

    No link is followed, directories that their owner cannot enter are made accessible, and the depth does not matter:
    a directory is moved to the top before it is emptied. Raises OSError if something cannot be removed. With
    `directory`, an open one, `path` is a name in it.
    """
    name = os.fspath(path)
    if _unlink(name, directory):
        return
    _make_accessible(name, directory)
    top = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=directory)


def read_end(path: Path, limit: int) -> bytes:
    """The last bytes of a regular file; empty for anything else, which might block, or lead elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(descriptor, limit, max(0, status.st_size - limit))
    finally:
        os.close(descriptor)


def _empty(top: int) -> None:
    prefix, count = f".removed-{secrets.token_hex(8)}", 0
    while names := _first_names(top):
        for name in names:
            if _unlink(name, top):
                continue
            _make_accessible(name, top)
            below = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                while entries := _first_names(below):
                    for entry in entries:
                        if not _unlink(entry, below):
                            _make_accessible(entry, below)
                            os.rename(entry, f"{prefix}-{count}", src_dir_fd=below, dst_dir_fd=top)
                            count += 1
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)


def _first_names(directory: int) -> list[str]:
    """Some of the names in a directory, however many it has."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) == _BATCH:
                break
    return names


def _unlink(name: str, directory: int | None) -> bool:
    """Remove what is not a directory; False for a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if not stat.S_ISDIR(status.st_mode):
            raise
        return False
    return True


def _make_accessible(name: str, directory: int | None) -> None:
    """Let the owner of a directory list and change it."""
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{descriptor}", mode | stat.S_IRWXU)  # noqa: PTH101 - the open directory itself
    finally:
        os.close(descriptor)
