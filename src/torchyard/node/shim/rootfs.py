"""Builds a container's root from a list of steps, inside a fresh mount namespace.

The agent composes the steps (`runtime.rootfs_steps`); this module carries them out. Sources and targets are opened
(`mount_sources`, `beneath`) and mounted by descriptor: neither a symbolic link in an image or a volume, nor a process
that exchanges it meanwhile, can lead a mount outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from torchyard.node.shim import beneath, linux, mount_sources, shifted_ids, tree_copies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.node.shim.record_types import ContainerConfig, RootfsStep

_OLD_ROOT = "machine"  # in /dev/pts, below the file system that is mounted there: nothing in the container leads to it
_OVERLAY = "overlay"  # in the prepared root: where the overlay is mounted that is the container's root
_PSEUDO = ("/proc", "/sys", "/dev")  # an image must not have links in their place
_PATH = os.O_PATH | os.O_CLOEXEC
_opened: list[int] = []  # descriptors of the current step
_proc_devices: list[int] = []  # of the container's /proc, once it is mounted
_old_root_places: list[int] = []  # /dev/pts, opened before it was covered
# What runc allows to be mounted inside /proc: files that lxcfs emulates.
_EMULATED = frozenset(
    f"/proc/{name}" for name in ("cpuinfo", "diskstats", "meminfo", "stat", "swaps", "uptime", "loadavg", "slabinfo")
)
_EMPTY = "/dev/.empty"  # the second layer of an overlay, which the kernel demands; hidden by the container's /dev


def build(config: ContainerConfig, steps: list[RootfsStep], files: Sequence[int] = ()) -> int:
    """Build the root in a directory of its own (on disk: what a container writes takes no memory) and pivot into it.

    Returns an open file of the machine's root, which is covered: only a process that may unmount can reach it.
    `detach_old_root` unmounts it later: the kernel then waits for all readers, which takes longer than the rest.
    Where the ids of the pod are shifted, the agent has prepared the mounts, and `files` are their descriptors.
    """
    os.umask(0o022)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    if config.get("shifted"):
        root = _attach_root(config, steps, files)
    else:
        root = config["root_directory"]
        linux.mount(root, root, flags=linux.MS_BIND)
    for step in steps:
        _OPERATIONS[step["op"]](root, step)
        _close_opened()
    if config["read_only_root"]:
        linux.remount_read_only(root)
    old_root = _pivot(root)
    for path in config["masked_paths"]:
        _mask(path)
    for path in config["read_only_paths"]:
        _bind_read_only(path)
    return old_root


_mounts: list[int] = []  # descriptors of the mounts that the agent has prepared
_places: list[int] = []  # an open directory on which mounts are attached that are not reached by a path


def _attach_root(config: ContainerConfig, steps: list[RootfsStep], files: Sequence[int]) -> str:
    """Mount the root that the agent has prepared, and become root of the pod. Returns a path that leads to it."""
    place = os.open(config["root_directory"], _PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    for step in steps:
        if step["op"] == "bind" and step.get("in_memory"):
            step["descriptor"] = os.open(step["source"], _PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    shifted_ids.become_root()  # the machine's user of the shim can create no files in the pod's mounts
    _mounts.extend(files)
    _places.append(place)
    root = files[config["root_file"]]
    linux.attach_mount(root, place)
    if not any(step["op"] == "overlay" and step["target"] == "/" for step in steps):
        return f"/proc/self/fd/{root}"
    # A path with a name at its end leads to what is mounted there, where a descriptor leads to what it covers.
    with contextlib.suppress(FileExistsError):
        os.mkdir(_OVERLAY, dir_fd=root)
    return f"/proc/self/fd/{root}/{_OVERLAY}"


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


def _pivot(root: str) -> int:
    """Make the container's root the root, and move the machine's to where another file system covers it."""
    place = _old_root_places.pop()
    below = os.open(_OLD_ROOT, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    linux.pivot_root(root, f"/proc/self/fd/{below}")
    old_root = os.open(_OLD_ROOT, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    os.chdir("/")
    for descriptor in (place, below):
        os.close(descriptor)
    return old_root


def detach_old_root(old_root: int) -> None:
    """Unmount the machine's root, in the mount namespace of a container whose root was built."""
    os.fchdir(old_root)
    linux.unmount(".")
    os.chdir("/")


def _directory(root: str, step: RootfsStep) -> None:
    target = _ensure(root, step["target"], directory=True)
    if "mode" in step:
        os.chmod(target, step["mode"])


def _bind(root: str, step: RootfsStep) -> None:
    """Bind a file or directory; an `optional` step is skipped if the machine does not have the source."""
    if step.get("in_empty_root") and "file" not in step:
        _bind_in_empty_root(root, step)
        return
    if "file" in step:
        _attach(root, step)
        return
    source = _open_inside(root, step["source"]) if step.get("from_root") else mount_sources.open_source(step)
    if source is None:
        return
    _open(source)
    target = _ensure(root, step["target"], directory=stat.S_ISDIR(os.fstat(source).st_mode))
    _check_target(step)
    recursive = linux.MS_REC if step.get("recursive", True) else 0
    try:
        linux.mount(f"/proc/self/fd/{source}", target, flags=linux.MS_BIND | recursive)
    except OSError as error:
        number = error.errno or 0
        raise OSError(number, f"mount {step['source']} on {step['target']}: {os.strerror(number)}") from error
    if step.get("no_exec"):
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.remount(_mounted(root, step["target"], source), flags)
    read_only, no_devices = step.get("read_only", False), step.get("no_devices", False)
    if read_only or no_devices:
        linux.restrict(_mounted(root, step["target"], source), read_only=read_only, no_devices=no_devices)


def _check_target(step: RootfsStep) -> None:
    """The target was opened last."""
    if os.fstat(_opened[-1]).st_dev in _proc_devices and step["target"] not in _EMULATED:
        raise OSError(errno.EPERM, f'"{step["target"]}" cannot be mounted because it is inside /proc')


def _attach(root: str, step: RootfsStep) -> None:
    """Mount what the agent has prepared."""
    mount = _mounts[step["file"]]
    _ensure(root, step["target"], directory=stat.S_ISDIR(os.fstat(mount).st_mode))
    _check_target(step)
    linux.attach_mount(mount, _opened[-1])


def _bind_in_empty_root(root: str, step: RootfsStep) -> None:
    """Bind a path of the machine while the root holds nothing of an image or a pod: no path needs to be resolved."""
    source, target = step["source"], root + step["target"]
    try:
        is_directory = stat.S_ISDIR(os.stat(source).st_mode)
    except OSError:
        if step.get("optional"):
            return
        raise
    try:
        _create(target, directory=is_directory)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target))
        _create(target, directory=is_directory)
    linux.mount(source, target, flags=linux.MS_BIND | linux.MS_REC)
    if step.get("read_only"):
        linux.make_read_only(target)


def _create(path: str, *, directory: bool) -> None:
    with contextlib.suppress(FileExistsError):
        if directory:
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o666))


def _open_inside(root: str, path: str) -> int:
    top = _open(os.open(root, _PATH | os.O_DIRECTORY))
    return beneath.open_path(top, path, in_root=True)


def _mounted(root: str, path: str, source: int) -> str:
    """What was just mounted at a path: the mount itself, where the target's descriptor is what it covers."""
    mounted = _ensure(root, path, directory=True)
    if not beneath.same_file(_opened[-1], source):
        raise OSError(errno.EXDEV, f"{path} changed while it was mounted")
    return mounted


def _machine(root: str, step: RootfsStep) -> None:
    """A file or directory of the machine for a container that may remount: not even that makes it writable.

    A directory becomes an overlay that has no writable layer, as has each mount below it; a file becomes a copy.
    """
    source, target = step["source"], step["target"]
    if not os.path.exists(source):
        return  # as an optional bind
    if not os.path.isdir(source):
        with open(source, "rb") as original:
            _write(root, target, original.read())
        return
    _ensure(root, _EMPTY, directory=True)
    empty = _opened[-1]
    for mount_point in [source, *(path for path in linux.mounts_below(source) if path != source)]:
        if os.path.isdir(mount_point):
            lower = _open(os.open(mount_point, _PATH | os.O_DIRECTORY))
            data = f"lowerdir=/proc/self/fd/{lower}:/proc/self/fd/{empty}"
            covered = _ensure(root, target + mount_point[len(source) :], directory=True)
            linux.mount("overlay", covered, "overlay", flags=linux.MS_RDONLY, data=data)


def _tmpfs(root: str, step: RootfsStep) -> None:
    target = _ensure(root, step["target"], directory=True)
    data = f"mode={step.get('mode', 0o755):o}" + (f",size={step['size']}" if step.get("size") else "")
    linux.mount("tmpfs", target, "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data=data)


def _proc(root: str, step: RootfsStep) -> None:
    """The processes of the container's own pid namespace, or else (`source`) the machine's."""
    target = _ensure(root, step["target"], directory=True)
    if "source" in step:
        linux.mount(step["source"], target, flags=linux.MS_BIND | linux.MS_REC)
    else:
        linux.mount("proc", target, "proc", flags=linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    _ensure(root, step["target"], directory=True)
    _proc_devices.append(os.fstat(_opened[-1]).st_dev)


def _sys(root: str, step: RootfsStep) -> None:
    """A sysfs of the pod's own network namespace, or else the machine's, without its cgroups; read-only."""
    target = _ensure(root, step["target"], directory=True)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
    try:
        linux.mount("sysfs", target, "sysfs", flags=flags)
    except OSError:
        linux.mount("/sys", target, flags=linux.MS_BIND | linux.MS_REC)
        linux.make_read_only(_mounted(root, step["target"], _open(os.open("/sys", _PATH))))
        if os.path.isdir("/sys/fs/cgroup"):
            cgroups = _ensure(root, f"{step['target']}/fs/cgroup", directory=True)
            linux.mount("tmpfs", cgroups, "tmpfs", flags=linux.MS_RDONLY, data="size=0k")


def _terminals(root: str, step: RootfsStep) -> None:
    target = _ensure(root, step["target"], directory=True)
    os.mkdir(_OLD_ROOT, 0o700, dir_fd=_opened[-1])
    _old_root_places.append(os.dup(_opened[-1]))
    flags = linux.MS_NOSUID | linux.MS_NOEXEC
    linux.mount("devpts", target, "devpts", flags=flags, data="newinstance,ptmxmode=0666,mode=0620")
    _link(root, {"op": "link", "target": "/dev/ptmx", "goal": "pts/ptmx"})


def _mqueue(root: str, step: RootfsStep) -> None:
    """The message queues of the pod's IPC namespace, or the machine's where the pod shares that."""
    target = _ensure(root, step["target"], directory=True)
    try:
        linux.mount("mqueue", target, "mqueue", flags=linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except PermissionError:
        if os.path.ismount("/dev/mqueue"):
            linux.mount("/dev/mqueue", target, flags=linux.MS_BIND)
    except OSError as error:
        if error.errno != errno.ENODEV:  # a kernel without message queues
            raise


def _link(root: str, step: RootfsStep) -> None:
    parent, name = os.path.split(step["target"])
    _ensure(root, parent, directory=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(step["goal"], name, dir_fd=_opened[-1])


def _file(root: str, step: RootfsStep) -> None:
    _write(root, step["target"], step["text"].encode())


def _write(root: str, path: str, content: bytes) -> None:
    target = _ensure(root, path, directory=False)
    if not stat.S_ISREG(os.fstat(_opened[-1]).st_mode):
        raise OSError(errno.EINVAL, f"{path} is not a regular file")
    with open(target, "wb") as out:
        out.write(content)


def _overlay(root: str, step: RootfsStep) -> None:
    """Image layers below, the container's own writable layer on top."""
    if "layers" in step:
        lower, own = _attach_layers(step)
    else:
        lower, own = _open_layers(step)
    # By descriptor: the name of a directory in an image may contain the characters that separate mount options.
    paths = ":".join(f"/proc/self/fd/{layer}" for layer in lower)
    data = f"lowerdir={paths},upperdir=/proc/self/fd/{own[0]},workdir=/proc/self/fd/{own[1]}"
    target = _ensure(root, step["target"], directory=True)
    try:
        linux.mount("overlay", target, "overlay", data=data + ",userxattr")
    except OSError:
        if step.get("template"):
            tree_copies.copy_tree(lower[0], _opened[-1])
            return
        linux.mount("overlay", target, "overlay", data=data)


def _open_layers(step: RootfsStep) -> tuple[list[int], list[int]]:
    """The layers of an image, and the directories that the container writes to."""
    lower = [_open(mount_sources.open_layer(tree, path)) for tree, path in step["lower"]]
    own = []
    for directory in (step["upper"], step["work"]):
        if not os.path.isdir(directory):
            os.makedirs(directory)
            os.chmod(directory, stat.S_IMODE(os.fstat(lower[0]).st_mode))  # the upper directory's counts
        own.append(_open(os.open(directory, _PATH | os.O_DIRECTORY | os.O_NOFOLLOW)))
    return lower, own


def _attach_layers(step: RootfsStep) -> tuple[list[int], list[int]]:
    """As `_open_layers`, of mounts that the agent has prepared: an overlay accepts only mounts that are attached."""
    lower = [_mounts[place] for place in step["layers"]]
    scratch = _mounts[step["scratch"]]
    for mount in (*lower, scratch):
        if mount not in _attached:
            linux.attach_mount(mount, _places[0])
            _attached.add(mount)
    flags = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    return lower, [_open(os.open(step[name], flags, dir_fd=scratch)) for name in ("upper", "work")]


_attached: set[int] = set()


def _ensure(root: str, path: str, *, directory: bool) -> str:
    """Open a mount point, created if it is missing; returns a path that leads to the open file.

    A parent that cannot be written to is replaced by a writable copy.
    """
    for _ in range(_MAX_COPIES):
        top = os.open(root, _PATH | os.O_DIRECTORY)  # opened anew: a step may have mounted something over it
        try:
            return f"/proc/self/fd/{_open(_open_or_create(top, path, directory=directory))}"
        except beneath.CannotCreate as error:
            tree_copies.cover_with_copy(_open(error.directory), _open(error.parent))
        finally:
            os.close(top)
    raise OSError(errno.EROFS, f"{path} cannot be created")


_MAX_COPIES = 40  # at most one for each component of a path


def _open_or_create(top: int, path: str, *, directory: bool) -> int:
    if path in _PSEUDO and _is_link(top, path[1:]):
        raise OSError(errno.ELOOP, f"filesystem {path} must be mounted on ordinary directory")
    try:
        return beneath.open_path(top, path, in_root=True)
    except FileNotFoundError:
        make = beneath.make_directories if directory else beneath.make_file
        return make(top, path, in_root=True)


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _open(descriptor: int) -> int:
    """Have a descriptor closed at the end of the step."""
    _opened.append(descriptor)
    return descriptor


def _close_opened() -> None:
    while _opened:
        os.close(_opened.pop())


_OPERATIONS = {
    "directory": _directory,
    "bind": _bind,
    "machine": _machine,
    "tmpfs": _tmpfs,
    "proc": _proc,
    "sys": _sys,
    "terminals": _terminals,
    "mqueue": _mqueue,
    "link": _link,
    "file": _file,
    "overlay": _overlay,
}
