"""Mounts that show the files of the machine with the ids of a pod's user namespace.

A file of uid 0 on disk belongs to root of the pod, and a file that root of the pod creates is of uid 0 on disk. To make
such a mount takes CAP_SYS_ADMIN of the machine: the agent opens what a container mounts, and the shim attaches it.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import stat
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.node.shim import beneath, linux, mount_sources, shifted_ids
from torchyard.node.shim.socket_server import close_all

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ContainerConfig, RootfsStep

log = logging.getLogger(__name__)

_PATH = os.O_PATH | os.O_CLOEXEC
_DIRECTORY = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_NOT_MAPPABLE = (errno.EINVAL, errno.EPERM)  # the file system has no support for it; the mount has an id map already
_PROBE_FIRST = 0x70000000


class MountProbe:
    """Finds out which file systems can be mounted with other ids. Raises OSError where none can."""

    def __init__(self) -> None:
        read, write = os.pipe()
        pid = linux.clone(linux.NEWUSER)
        if pid == 0:  # lives until its namespace is open in the parent, and does nothing
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        try:
            linux.map_range(pid, _PROBE_FIRST, shifted_ids.COUNT)
            self._user_namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read)
            os.close(write)
        self._problems: dict[int, str] = {}  # by device

    def close(self) -> None:
        os.close(self._user_namespace)

    def problem(self, path: Path) -> str:
        """Why a path cannot be mounted with other ids; empty if it can."""
        try:
            source = os.open(path, _PATH)
        except OSError as error:
            return str(error)
        try:
            status = os.fstat(source)
            if max(status.st_uid, status.st_gid) >= shifted_ids.COUNT:
                return f"{path} belongs to uid {status.st_uid} and gid {status.st_gid}"
            if status.st_dev not in self._problems:
                self._problems[status.st_dev] = self._try(source)
            problem = self._problems[status.st_dev]
            return f"{path}: {problem}" if problem else ""
        finally:
            os.close(source)

    def _try(self, source: int) -> str:
        try:
            mount = linux.clone_mount(source, recursive=False)
            try:
                linux.configure_mount(mount, user_namespace=self._user_namespace)
            finally:
                os.close(mount)
        except OSError as error:
            return str(error)
        return ""


def missing(path: Path = Path("/usr")) -> str:
    """Why this machine cannot shift the ids of pods; empty if it can."""
    if os.geteuid() != 0:
        return "only root may"
    try:
        probe = MountProbe()
    except OSError as error:
        return str(error)
    try:
        return probe.problem(path)
    finally:
        probe.close()


class ContainerMounts:
    """The mounts of one container, and its config with references to them. Close them when the shim has them."""

    def __init__(self, config: ContainerConfig, *, user_namespace: int, in_memory: Collection[str]) -> None:
        self.files: list[int] = []
        self._user_namespace, self._in_memory = user_namespace, in_memory
        self._scratch: dict[Path, int] = {}
        try:
            place = self._add_directory(Path(config["root_directory"]))
            steps = [part for step in config["root"] or () for part in self._step(step)]
        except BaseException:
            self.close()
            raise
        self.config: ContainerConfig = {
            **config,
            "root": steps,
            "root_file": place,
            "shifted": True,
        }

    def close(self) -> None:
        close_all(self.files)
        self.files.clear()

    def _add(self, source: int, *, recursive: bool = True, **restrictions: bool) -> int:
        """Make a mount of an open file; returns its place among the files. OSError: it cannot have the pod's ids."""
        mount = linux.clone_mount(source, recursive=recursive)
        try:
            linux.configure_mount(mount, user_namespace=self._user_namespace, **restrictions)
        except OSError:
            os.close(mount)
            raise
        self.files.append(mount)
        return len(self.files) - 1

    def _add_unmapped(self, source: int, **restrictions: bool) -> int:
        """As `_add`, for a mount whose file system has no support: its files are those of nobody."""
        self.files.append(linux.clone_mount(source, recursive=False))
        linux.configure_mount(self.files[-1], **restrictions)
        return len(self.files) - 1

    def _add_each(self, source: int, target: str, **restrictions: bool) -> list[RootfsStep]:
        """A mount and those below it one by one: some of them cannot have the pod's ids."""
        top = os.path.realpath(f"/proc/self/fd/{source}")
        below = [os.path.relpath(path, top) for path in linux.mounts_below(top) if path != top]
        steps: list[RootfsStep] = []
        for path in [".", *below]:
            try:
                opened = os.dup(source) if path == "." else beneath.open_path(source, path)
            except OSError as error:  # unmounted since, or covered
                log.info("mount left out: path=%s error=%r", f"{top}/{path}", str(error))
                continue
            try:
                place = self._add(opened, recursive=False, **restrictions)
            except OSError as error:
                if error.errno not in _NOT_MAPPABLE:
                    raise
                log.info("ids not shifted in a mount: path=%s error=%r", f"{top}/{path}", str(error))
                place = self._add_unmapped(opened, **restrictions)
            finally:
                os.close(opened)
            at = target if path == "." else f"{target.rstrip('/')}/{path}"
            steps.append({"op": "bind", "source": f"{top}/{path}", "target": at, "file": place})
        return steps

    def _step(self, step: RootfsStep) -> list[RootfsStep]:
        if step["op"] == "bind" and not step.get("from_root") and not _is_device(step):
            return self._bind(step)
        return [self._overlay(step)] if step["op"] == "overlay" else [step]

    def _bind(self, step: RootfsStep) -> list[RootfsStep]:
        if step["source"] in self._in_memory:
            return [{**step, "in_memory": True}]
        source = mount_sources.open_source(step)
        if source is None:
            return []
        restrictions = {
            "read_only": step.get("read_only", False),
            "no_devices": step.get("no_devices", False),
            "no_exec": step.get("no_exec", False),
        }
        try:
            place = self._add(source, **restrictions)
        except OSError as error:
            if error.errno not in _NOT_MAPPABLE:
                raise
            return self._add_each(source, step["target"], **restrictions)
        finally:
            os.close(source)
        return [{"op": "bind", "source": step["source"], "target": step["target"], "file": place}]

    def _overlay(self, step: RootfsStep) -> RootfsStep:
        scratch = Path(step["upper"]).parent.parent
        layers = [self._add_layer(tree, path) for tree, path in step["lower"]]
        mode = stat.S_IMODE(os.fstat(self.files[layers[0]]).st_mode)  # the upper directory's counts
        for directory in (Path(step["upper"]), Path(step["work"])):
            if not directory.is_dir():
                directory.mkdir(parents=True)
                directory.chmod(mode)
        if scratch not in self._scratch:
            self._scratch[scratch] = self._add_directory(scratch)
        return {
            "op": "overlay",
            "target": step["target"],
            "template": step.get("template", False),
            "layers": layers,
            "scratch": self._scratch[scratch],
            "upper": str(Path(step["upper"]).relative_to(scratch)),
            "work": str(Path(step["work"]).relative_to(scratch)),
        }

    def _add_layer(self, tree: str, path: str) -> int:
        layer = mount_sources.open_layer(tree, path)
        try:
            return self._add(layer, recursive=False)
        finally:
            os.close(layer)

    def _add_directory(self, path: Path) -> int:
        directory = os.open(path, _DIRECTORY)
        try:
            return self._add(directory, recursive=False)
        finally:
            os.close(directory)


def _is_device(step: RootfsStep) -> bool:
    """A device file of the machine: any user may open those that containers get."""
    return step["source"].startswith("/dev/") and not step.get("no_follow")
