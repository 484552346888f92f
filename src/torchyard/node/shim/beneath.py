"""Opens paths below an open directory, wherever their links lead and whoever exchanges them meanwhile.

A path that a pod, an image or a volume contributes is opened once, with one of two meanings, and from then on only the
open file is used:

- beneath a volume: links may lead anywhere in the volume; a path that leaves it raises `PathEscapes` (the kubelet's
  subPath);
- in a container's root (`in_root`): `/` and `..` stop at the root, as the container itself would see them.

`openat2` does both in the kernel. Where it is missing, every component is opened by itself and no link is followed
except by this module.
"""

from __future__ import annotations

import errno
import functools
import os
import stat

from torchyard.node.shim import linux

_MAX_LINKS = 40
_PATH = os.O_PATH | os.O_CLOEXEC
_COMPONENT = _PATH | os.O_NOFOLLOW
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class PathEscapes(OSError):
    """The path leads out of the directory that it must stay in."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, "the path leads out of its directory", path)


class CannotCreate(OSError):
    """A missing component cannot be created. `directory` is open, and the caller's to close."""

    def __init__(self, number: int, path: str, directory: int, parent: int, name: str) -> None:
        super().__init__(number, os.strerror(number), path)
        self.directory, self.parent, self.name = directory, parent, name


def open_path(root: int, path: str, *, in_root: bool = False) -> int:
    """The file or directory at `path`, as an O_PATH descriptor; links are followed."""
    if has_openat2():
        resolve = linux.RESOLVE_NO_MAGICLINKS | (linux.RESOLVE_IN_ROOT if in_root else linux.RESOLVE_BENEATH)
        try:
            return linux.openat2(root, path.lstrip("/") or ".", flags=_PATH, resolve=resolve)
        except OSError as error:
            # EAGAIN: something was renamed meanwhile. EXDEV: it escapes, unless an absolute link leads back in.
            if error.errno not in (errno.EAGAIN, errno.EXDEV):
                raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
    return _Walk(root, path, in_root=in_root).run()


def make_directories(root: int, path: str, *, mode: int = 0o755, in_root: bool = False) -> int:
    """The directory at `path`, as an O_PATH descriptor; missing ones are created with `mode`, whatever the umask is."""
    return _Walk(root, path, in_root=in_root, directory_mode=mode).run()


def make_file(root: int, path: str, *, mode: int = 0o666, in_root: bool = False) -> int:
    """As `make_directories`, for a file: the last component is an empty file if it is missing."""
    return _Walk(root, path, in_root=in_root, directory_mode=0o755, file_mode=mode).run()


@functools.cache
def has_openat2() -> bool:
    """False on an old kernel, or under a filter that does not know the call."""
    try:
        os.close(linux.openat2(linux.AT_FDCWD, "/", flags=_PATH, resolve=0))
    except OSError:
        return False
    return True


def same_file(left: int, right: int) -> bool:
    first, second = os.fstat(left), os.fstat(right)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


class _Walk:
    """One resolution, component by component. `_directories` are open, from the root to the current one."""

    def __init__(
        self, root: int, path: str, *, in_root: bool, directory_mode: int | None = None, file_mode: int | None = None
    ) -> None:
        self._root, self._path, self._in_root = root, path, in_root
        self._directory_mode, self._file_mode = directory_mode, file_mode
        self._directories = [os.dup(root)]
        self._remaining = _components(path)
        self._links = 0

    def run(self) -> int:
        try:
            while self._remaining:
                self._enter(self._remaining.pop())
            return self._directories.pop()
        finally:
            for descriptor in self._directories:
                os.close(descriptor)

    def _enter(self, name: str) -> None:
        if name == "..":
            if len(self._directories) > 1:
                os.close(self._directories.pop())
            elif not self._in_root:
                raise PathEscapes(self._path)
            return
        child = self._open(name)
        if not stat.S_ISLNK(os.fstat(child).st_mode):
            self._directories.append(child)
            return
        try:
            destination = os.readlink("", dir_fd=child)
        finally:
            os.close(child)
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)
        if destination.startswith("/"):
            destination = self._below_root(destination)
            self._return_to_root()
        self._remaining += _components(destination)

    def _open(self, name: str) -> int:
        current = self._directories[-1]
        try:
            return os.open(name, _COMPONENT, dir_fd=current)
        except FileNotFoundError:
            if self._directory_mode is None:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), self._path) from None
        try:
            self._create(name)
        except FileExistsError:
            pass  # another process was faster; whatever it is, it is opened as any other
        except OSError as error:
            if error.errno not in _READ_ONLY or len(self._directories) < 2:
                raise
            directory, parent = os.dup(current), os.dup(self._directories[-2])
            raise CannotCreate(error.errno, self._path, directory, parent, name) from error
        return os.open(name, _COMPONENT, dir_fd=current)

    def _create(self, name: str) -> None:
        current = self._directories[-1]
        if self._file_mode is not None and not self._remaining:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, self._file_mode, dir_fd=current))
            return
        assert self._directory_mode is not None
        os.mkdir(name, self._directory_mode, dir_fd=current)
        created = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
        try:
            os.fchmod(created, self._directory_mode)  # mkdir applies the umask
        finally:
            os.close(created)

    def _below_root(self, destination: str) -> str:
        """The rest of an absolute link's destination below the root."""
        if self._in_root:
            return destination
        base = os.readlink(f"/proc/self/fd/{self._root}")
        if destination != base and not destination.startswith(f"{base}/"):
            raise PathEscapes(self._path)
        return destination[len(base) :]

    def _return_to_root(self) -> None:
        while len(self._directories) > 1:
            os.close(self._directories.pop())


def _components(path: str) -> list[str]:
    """Last one first, to be popped."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
