"""Opens what a container mounts. The open file is checked and mounted, never its name.

The agent calls these functions too, to report early what cannot be mounted; what counts is the file that the process
that mounts has open.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from torchyard.node.shim import beneath

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchyard.node.shim.record_types import RootfsStep

_PATH = os.O_PATH | os.O_CLOEXEC


class MountRefused(OSError):
    """The source is not what the pod may mount. The container is not started, and the start is tried again later."""


class HoldsState(OSError):
    """A hostPath is, contains or belongs to the node's own state."""


class WrongType(OSError):
    """A hostPath is not of the type that the volume requires."""


class SubPathNotCreated(OSError):
    """A subPath is missing and cannot be created."""


def open_source(step: RootfsStep) -> int | None:
    """The source of a bind step; None if it is missing and optional."""
    try:
        descriptor = _open_volume(step)
        if "sub_path" not in step:
            return descriptor
        try:
            return open_sub_path(descriptor, step["sub_path"])
        finally:
            os.close(descriptor)
    except OSError as error:
        if step.get("optional") and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        refusal = step.get("refusal", "")
        if isinstance(error, SubPathNotCreated):
            refusal = step.get("creation_refusal", refusal)
        if refusal:
            raise MountRefused(error.errno, refusal) from error
        raise


def _open_volume(step: RootfsStep) -> int:
    if "descriptor" in step:
        return os.dup(step["descriptor"])
    if "host_path_type" in step:
        return open_host_path(step["source"], step["host_path_type"], private=step.get("private", ()))
    if not step.get("no_follow"):
        return os.open(step["source"], _PATH)
    descriptor = os.open(step["source"], _PATH | os.O_NOFOLLOW)
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "is a symbolic link", step["source"])
    return descriptor


def open_layer(tree: str, path: str) -> int:
    """A directory of an image's layer. No link in it is followed: the layer lies on the machine, the link does not."""
    top = os.open(tree, _PATH | os.O_DIRECTORY)
    for name in path.split("/") if path else ():
        below = os.open(name, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
        os.close(top)
        top = below
    return top


def open_sub_path(volume: int, sub_path: str) -> int:
    """A subPath of a volume, as the kubelet does it: created if missing, refused if it leads out of the volume."""
    if sub_path.startswith("/") or ".." in sub_path.split("/"):
        raise beneath.PathEscapes(sub_path)
    try:
        return beneath.open_path(volume, sub_path)
    except FileNotFoundError:
        mode = stat.S_IMODE(os.fstat(volume).st_mode)
        try:
            return _close_on_failure(beneath.make_directories(volume, sub_path, mode=mode), _require_directory)
        except OSError as error:
            raise SubPathNotCreated(error.errno, error.strerror, sub_path) from error


def open_host_path(path: str, kind: str, *, private: Sequence[str]) -> int:
    """A hostPath of the given type. `…OrCreate` and an empty type create it; directories in `private` are refused."""
    root = os.open("/", _PATH | os.O_DIRECTORY)
    try:
        descriptor = _open_or_create(root, path, kind, private)
    finally:
        os.close(root)

    def check(opened: int) -> None:
        _check_state(opened, path, private)
        required = HOST_PATH_TYPES.get(kind)
        if required and not required(os.fstat(opened).st_mode):
            raise WrongType(errno.EINVAL, "has another type", path)

    return _close_on_failure(descriptor, check)


def _open_or_create(root: int, path: str, kind: str, private: Sequence[str]) -> int:
    try:
        return beneath.open_path(root, path, in_root=True)
    except FileNotFoundError:
        if kind not in ("", "DirectoryOrCreate", "FileOrCreate"):
            raise WrongType(errno.ENOENT, "does not exist", path) from None
    # Created below a directory that is known not to be the node's own.
    parent, names = _existing_parent(root, path)
    try:
        _check_state(parent, path, private, may_contain=True)
        if kind == "FileOrCreate":
            if len(names) > 1:  # as the kubelet: only the file itself is created
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return beneath.make_file(parent, names[0], mode=0o644)
        return beneath.make_directories(parent, "/".join(names), mode=0o755)
    finally:
        os.close(parent)


def _existing_parent(root: int, path: str) -> tuple[int, list[str]]:
    """The last directory of a path that exists, and the names below it that do not."""
    names = [name for name in os.path.normpath(path).split("/") if name]
    for count in range(len(names) - 1, -1, -1):
        try:
            return beneath.open_path(root, "/".join(names[:count]) or "/", in_root=True), names[count:]
        except FileNotFoundError:
            continue
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _check_state(descriptor: int, path: str, private: Sequence[str], *, may_contain: bool = False) -> None:
    """Compare the open file itself with the directories of the node, by identity and by where the kernel has it."""
    for directory in private:
        state = os.open(directory, _PATH | os.O_DIRECTORY)
        try:
            inside = _is_below(descriptor, state) or _place(descriptor, state)
            if inside or (not may_contain and _is_below(state, descriptor)):
                raise HoldsState(errno.EPERM, "holds the node's own state", path)
        finally:
            os.close(state)


def _place(descriptor: int, state: int) -> bool:
    """Whether a file lies in the state, which it cannot be asked for its parent."""
    where, base = (os.readlink(f"/proc/self/fd/{number}") for number in (descriptor, state))
    return where == base or where.startswith(f"{base}/")


def _is_below(descriptor: int, directory: int) -> bool:
    """Whether an open directory is `directory` or lies in it."""
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        return False
    current = os.dup(descriptor)
    try:
        while True:
            if beneath.same_file(current, directory):
                return True
            try:
                parent = os.open("..", _PATH | os.O_DIRECTORY, dir_fd=current)
            except PermissionError:  # of another user: `_place` decides
                return False
            at_root = beneath.same_file(parent, current)
            os.close(current)
            current = parent
            if at_root:
                return False
    finally:
        os.close(current)


def _require_directory(descriptor: int) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _close_on_failure(descriptor: int, check: Callable[[int], None]) -> int:
    try:
        check(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


HOST_PATH_TYPES: dict[str, Callable[[int], bool]] = {
    "Directory": stat.S_ISDIR,
    "DirectoryOrCreate": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "FileOrCreate": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}
