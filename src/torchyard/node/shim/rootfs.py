"""Builds a container's root from a list of steps, inside a fresh mount namespace.

The agent composes the steps (`runtime.rootfs_steps`); this module carries them out. Targets are resolved inside the new
root, so that a symbolic link in an image can never lead a mount outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from torchyard.node.shim import linux

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig, RootfsStep

_MAX_LINKS, _ENODEV = 40, 19
_COVER = "/dev/.machine"  # a tmpfs over the directory that holds the machine's root, until that is detached
_OLD_ROOT = f"{_COVER}/root"


def build(config: ContainerConfig, steps: list[RootfsStep]) -> int:
    """Build the root in a directory of its own (on disk: what a container writes takes no memory) and pivot into it.

    Returns an open file of the machine's root, which is covered: only a process that may unmount can reach it.
    `detach_old_root` unmounts it later: the kernel then waits for all readers, which takes longer than the rest.
    """
    root = config["root_directory"]
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(root, root, flags=linux.MS_BIND)
    for step in steps:
        _OPERATIONS[step["op"]](root, step)
    if config["read_only_root"]:
        linux.remount_read_only(root)
    os.makedirs(f"{root}{_OLD_ROOT}")
    linux.pivot_root(root, f"{root}{_OLD_ROOT}")
    old_root = os.open(_OLD_ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # Over the parent directory: a mount stacked on the old root itself would be unmounted in its place.
    linux.mount("tmpfs", _COVER, "tmpfs", flags=linux.MS_RDONLY, data="mode=000,size=4k")
    for path in config["masked_paths"]:
        _mask(path)
    for path in config["read_only_paths"]:
        _bind_read_only(path)
    return old_root


def _mask(path: str) -> None:
    """Cover a path of the container's own root: a directory by an empty one, a file by /dev/null."""
    try:
        linux.mount("/dev/null", path, flags=linux.MS_BIND)
    except NotADirectoryError:
        linux.mount("tmpfs", path, "tmpfs", flags=linux.MS_RDONLY, data="size=0k")
    except FileNotFoundError:
        pass  # this kernel does not have it


def _bind_read_only(path: str) -> None:
    try:
        linux.mount(path, path, flags=linux.MS_BIND | linux.MS_REC)
    except FileNotFoundError:
        return  # this kernel does not have it
    linux.make_read_only(path)


def detach_old_root(old_root: int) -> None:
    """Unmount the machine's root, in the mount namespace of a container whose root was built."""
    os.fchdir(old_root)
    linux.unmount(".")
    os.chdir("/")
    linux.unmount(_COVER)
    os.rmdir(_OLD_ROOT)
    os.rmdir(_COVER)


def inside(root: str, path: str) -> str:
    """The path outside the container of `path` in it; links are followed as the container would follow them."""
    resolved: list[str] = []
    remaining = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    while remaining:
        part = remaining.pop()
        if part == "..":
            del resolved[-1:]
            continue
        here = "/".join([root, *resolved, part])
        try:
            destination = os.readlink(here)
        except OSError:
            resolved.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(40, f"too many levels of symbolic links in {path}")
        if destination.startswith("/"):
            resolved.clear()
        remaining.extend(piece for piece in reversed(destination.split("/")) if piece not in ("", "."))
    return "/".join([root, *resolved])


def _directory(root: str, step: RootfsStep) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    if "mode" in step:
        os.chmod(target, step["mode"])


def _bind(root: str, step: RootfsStep) -> None:
    """Bind a file or directory; an `optional` step is skipped if the machine does not have the source."""
    source = step["source"]
    try:
        is_directory = stat.S_ISDIR(os.stat(source).st_mode)
    except OSError:
        if step.get("optional"):
            return
        raise
    target = _ensure(root, inside(root, step["target"]), directory=is_directory)
    recursive = linux.MS_REC if step.get("recursive", True) else 0
    linux.mount(source, target, flags=linux.MS_BIND | recursive)
    if step.get("read_only"):
        linux.make_read_only(target)


def _tmpfs(root: str, step: RootfsStep) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    data = f"mode={step.get('mode', 0o755):o}" + (f",size={step['size']}" if step.get("size") else "")
    linux.mount("tmpfs", target, "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data=data)


def _proc(root: str, step: RootfsStep) -> None:
    """The processes of the container's own pid namespace, or else (`source`) the machine's."""
    target = _ensure(root, inside(root, step["target"]), directory=True)
    if "source" in step:
        linux.mount(step["source"], target, flags=linux.MS_BIND | linux.MS_REC)
    else:
        linux.mount("proc", target, "proc", flags=linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _sys(root: str, step: RootfsStep) -> None:
    """A sysfs of the pod's own network namespace, or else the machine's with all that is mounted there; read-only."""
    target = _ensure(root, inside(root, step["target"]), directory=True)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
    try:
        linux.mount("sysfs", target, "sysfs", flags=flags)
    except OSError:
        linux.mount("/sys", target, flags=linux.MS_BIND | linux.MS_REC)
        linux.make_read_only(target)


def _terminals(root: str, step: RootfsStep) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    flags = linux.MS_NOSUID | linux.MS_NOEXEC
    linux.mount("devpts", target, "devpts", flags=flags, data="newinstance,ptmxmode=0666,mode=0620")
    _link(root, {"op": "link", "target": "/dev/ptmx", "goal": "pts/ptmx"})


def _mqueue(root: str, step: RootfsStep) -> None:
    """The message queues of the pod's IPC namespace, or the machine's where the pod shares that."""
    target = _ensure(root, inside(root, step["target"]), directory=True)
    try:
        linux.mount("mqueue", target, "mqueue", flags=linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except PermissionError:
        if os.path.ismount("/dev/mqueue"):
            linux.mount("/dev/mqueue", target, flags=linux.MS_BIND)
    except OSError as error:
        if error.errno != _ENODEV:  # a kernel without message queues
            raise


def _link(root: str, step: RootfsStep) -> None:
    target = f"{inside(root, os.path.dirname(step['target']))}/{os.path.basename(step['target'])}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(step["goal"], target)


def _file(root: str, step: RootfsStep) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=False)
    with open(target, "w") as out:
        out.write(step["text"])


def _overlay(root: str, step: RootfsStep) -> None:
    """Image layers below, the container's own writable layer on top."""
    for directory in (step["upper"], step["work"]):
        os.makedirs(directory, exist_ok=True)
    lower = ":".join(step["lower"])
    data = f"lowerdir={lower},upperdir={step['upper']},workdir={step['work']}"
    target = _ensure(root, inside(root, step["target"]), directory=True)
    try:
        linux.mount("overlay", target, "overlay", data=data + ",userxattr")
    except OSError:
        linux.mount("overlay", target, "overlay", data=data)


def _ensure(root: str, target: str, *, directory: bool) -> str:
    """Create a mount point. A parent that cannot be written to is replaced by a writable copy."""
    if os.path.lexists(target):
        return target
    parent = os.path.dirname(target)
    if parent != root:
        _ensure(root, parent, directory=True)
    try:
        _create(target, directory=directory)
    except OSError:
        _replace_by_writable_copy(parent)
        _create(target, directory=directory)
    return target


def _create(target: str, *, directory: bool) -> None:
    if directory:
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o666))


def _replace_by_writable_copy(directory: str) -> None:
    """Cover a directory with a tmpfs that has the same entries, each bind-mounted again, and room for more."""
    covered = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        hidden = f"/proc/self/fd/{covered}"
        entries = os.listdir(hidden)
        linux.mount("tmpfs", directory, "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data="mode=755")
        for name in entries:
            source, target = f"{hidden}/{name}", f"{directory}/{name}"
            mode = os.lstat(source).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(source), target)
                continue
            _create(target, directory=stat.S_ISDIR(mode))
            linux.mount(source, target, flags=linux.MS_BIND | linux.MS_REC)
    finally:
        os.close(covered)


_OPERATIONS = {
    "directory": _directory,
    "bind": _bind,
    "tmpfs": _tmpfs,
    "proc": _proc,
    "sys": _sys,
    "terminals": _terminals,
    "mqueue": _mqueue,
    "link": _link,
    "file": _file,
    "overlay": _overlay,
}
