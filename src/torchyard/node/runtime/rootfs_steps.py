"""A container's root as steps for the shim: pure functions from image and mounts to a list.

A mapped image has the machine's programs and the Python environment, read-only, and nothing of the home directories.
"""

from __future__ import annotations

import functools
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.node.runtime import root_templates
from torchyard.node.runtime.root_templates import RootContent, RootTemplates

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import RootfsStep

# The machine's programs. A link of the machine (/bin → usr/bin) is a link in the container.
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt")
# The files of /etc that programs need; none of them is secret.
CONFIGURATION = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
    "group", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf",
    "nvidia", "OpenCL", "os-release", "passwd", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs",
    "pki/tls/openssl.cnf", "profile", "protocols", "python3", "services", "ssl/cert.pem", "ssl/certs",
    "ssl/openssl.cnf", "terminfo", "timezone", "vulkan",
)  # fmt: skip
NETWORK_FILES = ("hosts", "resolv.conf", "hostname")  # of /etc, which each pod has of its own
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # the default devices of the OCI runtime specification
_PRIVILEGED_DEVICES = ("fuse", "kvm", "infiniband", "dri")
# What the kubelet asks the container runtime for, unless procMount is Unmasked. /sys is read-only as a whole.
MASKED_PATHS = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
    "/sys/firmware",
)  # fmt: skip
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# Directories that every container has, with their modes.
_DIRECTORIES = {"/tmp": 0o1777, "/var/tmp": 0o1777, "/run": 0o755, "/root": 0o755, "/home": 0o755}  # noqa: S108
_DEV_BYTES = 64 << 20  # of what a container writes to its /dev
_PSEUDO = {"/proc", "/sys", "/dev"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the machine at a path of the container."""

    source: Path
    target: str
    read_only: bool = False
    no_exec: bool = False  # neither programs nor devices in it are usable
    sub_path: str = ""  # below the source; it cannot leave it
    host_path_type: str | None = None  # of a hostPath: what the source must be
    private: tuple[Path, ...] = ()  # directories that a hostPath must not be, contain or belong to
    creation_refusal: str = ""  # the error of a container whose subPath cannot be created
    refusal: str = ""  # the error of a container whose source must not be mounted
    no_devices: bool = False  # its device files cannot be opened


@dataclass(frozen=True, slots=True)
class RootfsSource:
    """What the root of an image's containers is made of."""

    machine: bool  # the machine's programs are the lowest layer
    layers: tuple[Path, ...] = ()  # trees of a built or unpacked image, lowest first
    prefixes: tuple[Path, ...] = ()  # Python environments, mounted at their own paths


def rootfs_steps(
    root: RootfsSource,
    mounts: list[Mount],
    *,
    scratch: Path,
    devices: list[Path],
    privileged: bool = False,
    may_remount: bool = False,
    host_pid: bool = False,
    templates: RootTemplates | None = None,
) -> list[RootfsStep]:
    """All steps in order. `scratch` is a directory for what the container writes into its layers.

    A container that `may_remount` (CAP_SYS_ADMIN) could make a read-only bind mount writable: it gets none. With
    `templates` the root of a mapped image is a layer over a template, and not created from nothing.
    """
    steps: list[RootfsStep] = []
    if templates and root.machine and not root.layers and not may_remount:
        content, binds = _template(root.prefixes)
        lower = str(templates.path(content))
        steps.append({**_overlay("/", [(lower, "")], scratch, 0), "template": True})
        steps += binds
        steps += _standard(devices, privileged=privileged, host_pid=host_pid)
    else:
        if root.machine:
            steps += _machine(root, scratch) + _prefixes(root.prefixes)
            if may_remount:
                steps = [_without_bind(step) for step in steps]
        elif root.layers:
            steps.append(_overlay("/", [(str(layer), "") for layer in reversed(root.layers)], scratch, 0))
        steps += _standard(devices, privileged=privileged, host_pid=host_pid)
        steps += [{"op": "directory", "target": path, "mode": mode} for path, mode in _DIRECTORIES.items()]
    if not root.layers:
        steps = [_in_empty_root(step) for step in steps]
    # the mount of a parent comes before that of its child
    for mount in sorted(mounts, key=lambda mount: mount.target.rstrip("/").count("/")):
        steps.append(_bind(mount))
    return steps


def _bind(mount: Mount) -> RootfsStep:
    step: RootfsStep = {
        "op": "bind",
        "source": str(mount.source),
        "target": mount.target,
        "read_only": mount.read_only,
        "no_follow": True,
    }
    if mount.no_exec:
        step["no_exec"] = True
    if mount.sub_path:
        step["sub_path"], step["creation_refusal"] = mount.sub_path, mount.creation_refusal
    if mount.host_path_type is not None:
        step["host_path_type"], step["private"] = mount.host_path_type, [str(path) for path in mount.private]
    if mount.no_devices:
        step["no_devices"] = True
    if mount.refusal:
        step["refusal"] = mount.refusal
    return step


def _in_empty_root(step: RootfsStep) -> RootfsStep:
    """A bind that needs no care for links: the root holds none but those of the machine."""
    through_link = step["target"].split("/")[1] in _machine_links()
    return step if step["op"] != "bind" or through_link else {**step, "in_empty_root": True}


def _without_bind(step: RootfsStep) -> RootfsStep:
    is_read_only = step["op"] == "bind" and step.get("read_only")
    return {"op": "machine", "source": step["source"], "target": step["target"]} if is_read_only else step


@functools.cache
def _machine_links() -> dict[str, str]:
    """The system directories that are links on this machine, and their targets."""
    paths = {name: Path("/", name) for name in SYSTEM}
    return {name: str(path.readlink()) for name, path in paths.items() if path.is_symlink()}


@functools.cache
def _configuration() -> tuple[RootfsStep, ...]:
    """Cached: to look at all these files takes longer than to start a pod."""
    paths = {name: Path("/etc", name) for name in CONFIGURATION}
    return tuple(
        {"op": "bind", "read_only": True, "optional": True, "source": str(path.resolve()), "target": f"/etc/{name}"}
        for name, path in paths.items()
        if path.exists()
    )


def _machine(root: RootfsSource, scratch: Path) -> list[RootfsStep]:
    """The image's layers, and the machine's directories over them: merged where a layer has a directory too."""
    layers = tuple(reversed(root.layers))
    steps: list[RootfsStep] = []
    if layers:
        steps.append(_overlay("/", [(str(layer), "") for layer in layers], scratch, 0))
    links = _machine_links()
    for name in SYSTEM:
        if name in links:
            # no effect where a layer has a directory of that name: it is merged below
            steps.append({"op": "link", "target": f"/{name}", "goal": links[name]})
        elif Path("/", name).is_dir():
            trees = _directories(layers, name)
            if trees:
                steps.append(_overlay(f"/{name}", [*trees, ("/", name)], scratch, len(steps)))
            else:
                steps.append({"op": "bind", "source": f"/{name}", "target": f"/{name}", "read_only": True})
    for name, goal in links.items():
        trees = _directories(layers, name)
        target = os.path.normpath(goal).lstrip("/")
        if trees and Path("/", target).is_dir():
            lower = [*trees, *_directories(layers, target), ("/", target)]
            steps.append(_overlay(f"/{target}", lower, scratch, len(steps)))
            steps.append({"op": "bind", "source": f"/{target}", "target": f"/{name}", "from_root": True})
    return steps + _configuration_with(layers, scratch, len(steps))


@functools.cache
def _template(prefixes: tuple[Path, ...]) -> tuple[RootContent, tuple[RootfsStep, ...]]:
    """The template of mapped images with these environments, and what is mounted on it."""
    links = _machine_links()
    system = [path for path in (Path("/", name) for name in SYSTEM if name not in links) if path.is_dir()]
    binds: list[RootfsStep] = [
        {"op": "bind", "source": str(path), "target": str(path), "read_only": True} for path in system
    ]
    binds += _prefixes(prefixes)
    directories = {target.strip("/"): 0o755 for target in ("/etc", *_PSEUDO, *(step["target"] for step in binds))}
    directories |= {path.strip("/"): mode for path, mode in _DIRECTORIES.items()}
    copies: dict[str, str] = {}
    files = [f"etc/{name}" for name in NETWORK_FILES]
    for step in _configuration():
        if root_templates.is_copied(step["source"]):
            copies[step["target"].strip("/")] = step["source"]
            continue
        binds.append(step)
        if Path(step["source"]).is_dir():
            directories[step["target"].strip("/")] = 0o755
        else:
            files.append(step["target"].strip("/"))
    return RootContent(copies, links, directories, tuple(files)), tuple(binds)


def _configuration_with(layers: tuple[Path, ...], scratch: Path, number: int) -> list[RootfsStep]:
    """The machine's files in /etc, except those that a layer has; directories are merged."""
    steps: list[RootfsStep] = []
    for step in _configuration():
        path = step["target"].lstrip("/")
        if not any(_has(layer, path) for layer in layers):
            steps.append(step)
            continue
        trees = _directories(layers, path)
        if trees and Path(step["source"]).is_dir():
            steps.append(_overlay(step["target"], [*trees, (step["source"], "")], scratch, number + len(steps)))
    return steps


def _directories(layers: tuple[Path, ...], path: str) -> list[tuple[str, str]]:
    """The layers that have a directory at `path`, the highest first, down to one that has something else there."""
    trees: list[tuple[str, str]] = []
    for layer in layers:
        current = layer
        for name in path.split("/"):
            current = current / name
            if not os.path.lexists(current):
                break
            if not _is_directory(current):
                return trees
        else:
            trees.append((str(layer), path))
    return trees


def _has(layer: Path, path: str) -> bool:
    """Whether a layer has anything at `path`, or something else than a directory on the way there."""
    current = layer
    for name in path.split("/"):
        if current != layer and not _is_directory(current):
            return True
        current = current / name
        if not os.path.lexists(current):
            return False
    return True


def _is_directory(path: Path) -> bool:
    """A directory itself: a link in a layer means a place of the container, not of the machine."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _overlay(target: str, lower: list[tuple[str, str]], scratch: Path, number: int) -> RootfsStep:
    return {
        "op": "overlay",
        "target": target,
        "lower": lower,
        "upper": str(scratch / "written" / str(number)),
        "work": str(scratch / "work" / str(number)),
    }


def _prefixes(prefixes: tuple[Path, ...]) -> list[RootfsStep]:
    """Python environments outside the system directories, unless another one contains them."""
    mounted = [Path("/") / name for name in SYSTEM if name not in _machine_links()]
    steps: list[RootfsStep] = []
    for prefix in sorted(set(prefixes)):
        if not any(prefix.is_relative_to(parent) for parent in mounted):
            mounted.append(prefix)
            steps.append({"op": "bind", "source": str(prefix), "target": str(prefix), "read_only": True})
    return steps


def _standard(devices: list[Path], *, privileged: bool, host_pid: bool) -> list[RootfsStep]:
    steps: list[RootfsStep] = [
        {"op": "proc", "target": "/proc", "source": "/proc"} if host_pid else {"op": "proc", "target": "/proc"},
        {"op": "sys", "target": "/sys"},
        {"op": "tmpfs", "target": "/dev", "size": _DEV_BYTES},
        {"op": "terminals", "target": "/dev/pts"},
        {"op": "mqueue", "target": "/dev/mqueue"},
        {"op": "link", "target": "/dev/fd", "goal": "/proc/self/fd"},
        {"op": "link", "target": "/dev/stdin", "goal": "/proc/self/fd/0"},
        {"op": "link", "target": "/dev/stdout", "goal": "/proc/self/fd/1"},
        {"op": "link", "target": "/dev/stderr", "goal": "/proc/self/fd/2"},
    ]
    names = DEVICES + (_PRIVILEGED_DEVICES if privileged else ())
    # A read-only mount does not keep a device from being written to, only its mode and owner from being changed.
    steps += [
        {"op": "bind", "source": str(path), "target": str(path), "optional": True, "read_only": True}
        for path in [*(Path("/dev", name) for name in names), *devices]
    ]
    return steps


def is_reserved(target: str) -> bool:
    """Whether a path must not be covered by a volume."""
    return os.path.normpath(f"/{target.lstrip('/')}") in _PSEUDO | {"/"}
