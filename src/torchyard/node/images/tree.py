"""Files of images, by directory descriptor: a link in a tree is copied or removed, never followed.

Layers use the kernel's own marks for what an upper layer removes from a lower one: a character device 0/0 (whiteout),
and an extended attribute of a directory that hides everything below it (opaque).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator

from torchyard import files
from torchyard.api.errors import YardError

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPAQUE = "user.overlay.opaque"
_MAX_DEPTH = 200
_CHUNK = 1 << 20
_SPECIAL = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}

Excluded = Callable[[str, bool], bool]  # (path below the source, whether it is a directory)


class TreeError(YardError):
    """A file that an image cannot contain; the message has its path."""

    code = "BadImage"


@contextlib.contextmanager
def opened(name: str | os.PathLike[str], directory: int | None = None) -> Iterator[int]:
    """A directory; a link in its place is refused."""
    descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remove(name: str, directory: int) -> None:
    """Remove what a directory has under this name, if anything."""
    files.remove_tree(name, directory=directory)


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(directory: int) -> bool:
    try:
        return os.getxattr(directory, OPAQUE) == b"y"
    except OSError:
        return False


def copy(
    source: int,
    target: int,
    *,
    excluded: Excluded | None = None,
    path: str = "",
    mode: int | None = None,
    skip_unreadable: bool = False,
) -> None:
    """Copy the entries of one directory into another. Devices, named pipes and sockets are refused."""
    _check_depth(path)
    for name in sorted(os.listdir(source)):
        where = f"{path}/{name}" if path else name
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        is_directory = stat.S_ISDIR(status.st_mode)
        if excluded and excluded(where, is_directory):
            continue
        if skip_unreadable and not _is_readable(name, source, status):
            continue
        if not is_directory:
            copy_file(name, source, name, target, path=where, mode=mode)
            continue
        make_directory(name, target)
        with opened(name, source) as below, opened(name, target) as above:
            copy(below, above, excluded=excluded, path=where, mode=mode, skip_unreadable=skip_unreadable)
            os.fchmod(above, stat.S_IMODE(status.st_mode) if mode is None else mode)
            _copy_times(status, above)


def _is_readable(name: str, directory: int, status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) or os.access(name, os.R_OK, dir_fd=directory)


def make_directory(name: str, parent: int) -> bool:
    """Have a directory of this name, in place of anything else; returns whether it is new."""
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return False
        remove(name, parent)
        os.mkdir(name, dir_fd=parent)
    return True


def copy_file(name: str, source: int, copy_name: str, target: int, *, path: str, mode: int | None = None) -> None:
    """Copy one file or link, in place of what the target has; holes in it stay holes."""
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    if kind in _SPECIAL:
        raise TreeError(f"{path} is {_SPECIAL[kind]}: an image contains files, directories and links only")
    remove(copy_name, target)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), copy_name, dir_fd=target)
        return
    reader = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        writer = os.open(copy_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
        try:
            _copy_data(reader, writer)
            os.fchmod(writer, stat.S_IMODE(status.st_mode) if mode is None else mode)
            _copy_times(status, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_times(status: os.stat_result, descriptor: int) -> None:
    os.utime(descriptor, ns=(status.st_mtime_ns, status.st_mtime_ns))


def _copy_data(reader: int, writer: int) -> None:
    size = os.fstat(reader).st_size
    for at, block in blocks(reader):
        os.lseek(writer, at, os.SEEK_SET)
        view = memoryview(block)
        while view:
            view = view[os.write(writer, view) :]
    os.ftruncate(writer, size)


def blocks(reader: int) -> Iterator[tuple[int, bytes]]:
    """A file's content with its offsets, without the holes."""
    for start, end in _extents(reader):
        at = os.lseek(reader, start, os.SEEK_SET)
        while at < end and (block := os.read(reader, min(_CHUNK, end - at))):
            yield at, block
            at += len(block)


def _extents(reader: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are not holes."""
    size, at = os.fstat(reader).st_size, 0
    while at < size:
        try:
            start = os.lseek(reader, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        at = os.lseek(reader, start, os.SEEK_HOLE)
        yield start, at


def digest(tree: int) -> tuple[str, int]:
    """A hash of names, modes and contents, and the bytes on disk: equal trees are one layer."""
    hashed = hashlib.sha256()
    size = _digest(tree, "", hashed.update)
    return hashed.hexdigest(), size


def _digest(directory: int, path: str, update: Callable[[bytes], None]) -> int:
    _check_depth(path)
    total = 0
    for name in sorted(os.listdir(directory)):
        where = f"{path}/{name}" if path else name
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        update(os.fsencode(where) + f"\0{status.st_mode:o}\0{status.st_size}\0".encode())
        if stat.S_ISDIR(status.st_mode):
            with opened(name, directory) as below:
                update(b"opaque\0" if is_opaque(below) else b"")
                total += _digest(below, where, update)
        elif stat.S_ISLNK(status.st_mode):
            update(os.fsencode(os.readlink(name, dir_fd=directory)))
        elif stat.S_ISREG(status.st_mode):
            total += _digest_file(name, directory, update)
    return total


def _digest_file(name: str, directory: int, update: Callable[[bytes], None]) -> int:
    reader = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    total = 0
    try:
        for at, block in blocks(reader):
            total += len(block)
            if block.strip(b"\0"):  # a hole and the same zeros on disk are equal
                update(f"{at}\0".encode() + block)
    finally:
        os.close(reader)
    return total


def _check_depth(path: str) -> None:
    if path.count("/") >= _MAX_DEPTH:
        raise TreeError(f"{path[:60]}…: directories are nested more than {_MAX_DEPTH} deep")
