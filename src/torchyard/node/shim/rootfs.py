"""Builds a container's root from a list of steps, inside a fresh mount namespace.

A step is a small dict with an `op`; the agent composes them (`runtime.compose`), this module only carries them out.
Targets are resolved inside the new root, so that a symbolic link in an image can never lead a mount outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from torchyard.node.shim import linux

Step = dict[str, Any]
_MAX_LINKS = 40
_COVER = "/dev/.machine"  # what lies over the directory below which the machine's root is, until that is let go
_MACHINE = f"{_COVER}/root"


def build(root: str, steps: list[Step], *, read_only: bool) -> int:
    """Compose the root in the directory `root` (on disk: what a container writes is not taken from memory), move in.

    Answers an open file of the machine's root, which is covered: nobody without the power to unmount sees it. Letting
    go of it is left to `forget_machine`: the kernel then waits for all readers, longer than for all the rest.
    """
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(root, root, flags=linux.MS_BIND)
    for step in steps:
        _OPERATIONS[step["op"]](root, step)
    if read_only:
        linux.make_read_only(root)
    os.makedirs(f"{root}{_MACHINE}")
    linux.pivot_root(root, f"{root}{_MACHINE}")
    machine = os.open(_MACHINE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # over the directory around it: what is stacked on a mount itself would be unmounted in its stead
    linux.mount("tmpfs", _COVER, "tmpfs", flags=linux.MS_RDONLY, data="mode=000,size=4k")
    return machine


def forget_machine(machine: int) -> None:
    """Let go of the machine's root, in the mount namespace of a container whose root was built."""
    os.fchdir(machine)
    linux.unmount(".")
    os.chdir("/")
    linux.unmount(_COVER)
    os.rmdir(_MACHINE)
    os.rmdir(_COVER)


def inside(root: str, path: str) -> str:
    """Where `path` of the container lies on this side; links are followed as the container would follow them."""
    done: list[str] = []
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            del done[-1:]
            continue
        here = "/".join([root, *done, part])
        try:
            goal = os.readlink(here)
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(40, f"too many levels of symbolic links in {path}")
        if goal.startswith("/"):
            done.clear()
        waiting.extend(piece for piece in reversed(goal.split("/")) if piece not in ("", "."))
    return "/".join([root, *done])


def _directory(root: str, step: Step) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    if "mode" in step:
        os.chmod(target, step["mode"])


def _bind(root: str, step: Step) -> None:
    """Bind a file or directory; `optional` steps pass over what the machine does not have."""
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


def _tmpfs(root: str, step: Step) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    data = f"mode={step.get('mode', 0o755):o}" + (f",size={step['size']}" if step.get("size") else "")
    linux.mount("tmpfs", target, "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data=data)


def _proc(root: str, step: Step) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    linux.mount("proc", target, "proc", flags=linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _sys(root: str, step: Step) -> None:
    """A sysfs of the pod's own network namespace, or else the machine's."""
    target = _ensure(root, inside(root, step["target"]), directory=True)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
    try:
        linux.mount("sysfs", target, "sysfs", flags=flags)
    except OSError:
        linux.mount("/sys", target, flags=linux.MS_BIND | linux.MS_REC)


def _terminals(root: str, step: Step) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=True)
    flags = linux.MS_NOSUID | linux.MS_NOEXEC
    linux.mount("devpts", target, "devpts", flags=flags, data="newinstance,ptmxmode=0666,mode=0620")
    _link(root, {"target": "/dev/ptmx", "goal": "pts/ptmx"})


def _link(root: str, step: Step) -> None:
    target = f"{inside(root, os.path.dirname(step['target']))}/{os.path.basename(step['target'])}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(step["goal"], target)


def _file(root: str, step: Step) -> None:
    target = _ensure(root, inside(root, step["target"]), directory=False)
    with open(target, "w") as out:
        out.write(step["text"])


def _overlay(root: str, step: Step) -> None:
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
    """Make a place to mount on. Where the parent cannot be written to, the parent is exploded."""
    if os.path.lexists(target):
        return target
    parent = os.path.dirname(target)
    if parent != root:
        _ensure(root, parent, directory=True)
    try:
        _create(target, directory=directory)
    except OSError:
        _explode(parent)
        _create(target, directory=directory)
    return target


def _create(target: str, *, directory: bool) -> None:
    if directory:
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o666))


def _explode(directory: str) -> None:
    """Cover a directory with a tmpfs that holds the same entries, each bound again, and room for more."""
    before = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        hidden = f"/proc/self/fd/{before}"
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
        os.close(before)


_OPERATIONS = {
    "directory": _directory,
    "bind": _bind,
    "tmpfs": _tmpfs,
    "proc": _proc,
    "sys": _sys,
    "terminals": _terminals,
    "link": _link,
    "file": _file,
    "overlay": _overlay,
}
