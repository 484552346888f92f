"""A container's root as steps for the shim: pure functions from image and mounts to a list.

A mapped image has the machine's programs and the Python environment, read-only, and nothing of the home directories.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import RootfsStep

# The machine's programs. A link of the machine (/bin → usr/bin) is a link in the container.
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt")
# The files of /etc that programs need; none of them is secret.
CONFIGURATION = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
    "group", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf",
    "nvidia", "OpenCL", "os-release", "passwd", "pki", "profile", "protocols", "python3", "services", "ssl", "terminfo",
    "timezone", "vulkan",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # the default devices of the OCI runtime specification
_PRIVILEGED_DEVICES = ("fuse", "kvm", "infiniband", "dri")
# What the kubelet asks the container runtime for, unless procMount is Unmasked. /sys is read-only as a whole.
MASKED_PATHS = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
    "/sys/firmware",
)  # fmt: skip
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_PSEUDO = {"/proc", "/sys", "/dev"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the machine at a path of the container."""

    source: Path
    target: str
    read_only: bool = False


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
    host_pid: bool = False,
) -> list[RootfsStep]:
    """All steps in order. `scratch` is a directory for what the container writes into its layers."""
    steps: list[RootfsStep] = []
    if root.machine:
        steps += _machine(root, scratch)
        steps += _prefixes(root.prefixes)
    elif root.layers:
        steps.append(_overlay("/", [str(layer) for layer in reversed(root.layers)], scratch, "root"))
    steps += _standard(devices, privileged=privileged, host_pid=host_pid)
    # the mount of a parent comes before that of its child
    for mount in sorted(mounts, key=lambda mount: mount.target.rstrip("/").count("/")):
        steps.append({"op": "bind", "source": str(mount.source), "target": mount.target, "read_only": mount.read_only})
    return steps


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
    steps: list[RootfsStep] = []
    links = _machine_links()
    in_layers = sorted({entry.name for layer in root.layers for entry in layer.iterdir() if entry.is_dir()})
    for name in SYSTEM:
        if name in links:
            steps.append({"op": "link", "target": f"/{name}", "goal": links[name]})
        elif name not in in_layers and Path("/", name).is_dir():
            steps.append({"op": "bind", "source": f"/{name}", "target": f"/{name}", "read_only": True})
    steps += _configuration()
    for name in in_layers:
        if name != "etc" and not Path("/", name).is_symlink():
            lower = [str(layer / name) for layer in reversed(root.layers) if (layer / name).is_dir()]
            if name in SYSTEM and Path("/", name).is_dir():
                lower.append(f"/{name}")
            steps.append(_overlay(f"/{name}", lower, scratch, name))
    for layer in root.layers:
        for entry in sorted(layer.iterdir()) if layer.is_dir() else ():
            if entry.name == "etc":
                steps += [
                    {"op": "bind", "source": str(path), "target": f"/etc/{path.name}"}
                    for path in sorted(entry.iterdir())
                ]
            elif not entry.is_dir():
                steps.append({"op": "bind", "source": str(entry), "target": f"/{entry.name}"})
    return steps


def _overlay(target: str, lower: list[str], scratch: Path, name: str) -> RootfsStep:
    return {
        "op": "overlay",
        "target": target,
        "lower": lower,
        "upper": str(scratch / "written" / name),
        "work": str(scratch / "work" / name),
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
        {"op": "tmpfs", "target": "/dev"},
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
    directories = (("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/root", 0o755), ("/home", 0o755))  # noqa: S108
    steps += [{"op": "directory", "target": path, "mode": mode} for path, mode in directories]
    return steps


def is_reserved(target: str) -> bool:
    """Whether a path must not be covered by a volume."""
    return os.path.normpath(target) in _PSEUDO | {"/"}
