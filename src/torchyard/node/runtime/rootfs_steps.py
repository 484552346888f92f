"""A container's root, as steps for the shim: pure functions from image and mounts to a list.

A mapped image shows the machine's programs and the Python environment, read-only, and nothing of anybody's home.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Step = dict[str, Any]

# The machine's programs. Where the machine has a link (/bin → usr/bin), so has the container.
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt")
# What programs need of /etc, and nothing that is secret.
CONFIGURATION = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gai.conf",
    "group", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf",
    "nvidia", "OpenCL", "os-release", "passwd", "pki", "profile", "protocols", "python3", "services", "ssl", "terminfo",
    "timezone", "vulkan",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse", "kvm", "infiniband", "dri")
_PSEUDO = {"/proc", "/sys", "/dev"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the machine at a place of the container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class RootfsSource:
    """What a container's root is made of."""

    machine: bool  # the machine's programs below everything
    layers: tuple[Path, ...] = ()  # trees of a built or unpacked image, lowest first
    prefixes: tuple[Path, ...] = ()  # Python environments, shown where they are


def root_steps(root: RootfsSource, mounts: list[Mount], *, scratch: Path, devices: list[Path]) -> list[Step]:
    """All steps in order. `scratch` is the container's own room on disk for what it writes into its layers."""
    steps: list[Step] = []
    if root.machine:
        steps += _machine(root, scratch)
        steps += _prefixes(root.prefixes)
    elif root.layers:
        steps.append(_overlay("/", [str(layer) for layer in reversed(root.layers)], scratch, "root"))
    steps += _standard(devices)
    # a mount of a parent must come before that of its child
    for mount in sorted(mounts, key=lambda one: one.target.rstrip("/").count("/")):
        steps.append({"op": "bind", "source": str(mount.source), "target": mount.target, "read_only": mount.read_only})
    return steps


@functools.cache
def _machine_links() -> dict[str, str]:
    """The system directories that are links on this machine, and where they lead."""
    places = {name: Path("/", name) for name in SYSTEM}
    return {name: str(place.readlink()) for name, place in places.items() if place.is_symlink()}


@functools.cache
def _configuration() -> tuple[Step, ...]:
    """Looked up once: a pod starts in less time than the look takes."""
    found = {name: Path("/etc", name) for name in CONFIGURATION}
    common = {"op": "bind", "read_only": True, "optional": True}
    return tuple(
        {**common, "source": str(path.resolve()), "target": f"/etc/{name}"}
        for name, path in found.items()
        if path.exists()
    )


def _machine(root: RootfsSource, scratch: Path) -> list[Step]:
    steps: list[Step] = []
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
                    {"op": "bind", "source": str(one), "target": f"/etc/{one.name}"} for one in sorted(entry.iterdir())
                ]
            elif not entry.is_dir():
                steps.append({"op": "bind", "source": str(entry), "target": f"/{entry.name}"})
    return steps


def _overlay(target: str, lower: list[str], scratch: Path, name: str) -> Step:
    return {
        "op": "overlay",
        "target": target,
        "lower": lower,
        "upper": str(scratch / "written" / name),
        "work": str(scratch / "work" / name),
    }


def _prefixes(prefixes: tuple[Path, ...]) -> list[Step]:
    """Python environments outside the system's directories, unless another one contains them."""
    shown = [Path("/") / name for name in SYSTEM if name not in _machine_links()]
    steps = []
    for prefix in sorted(set(prefixes)):
        if not any(prefix.is_relative_to(one) for one in shown):
            shown.append(prefix)
            steps.append({"op": "bind", "source": str(prefix), "target": str(prefix), "read_only": True})
    return steps


def _standard(devices: list[Path]) -> list[Step]:
    steps: list[Step] = [
        {"op": "proc", "target": "/proc"},
        {"op": "sys", "target": "/sys"},
        {"op": "tmpfs", "target": "/dev"},
        {"op": "terminals", "target": "/dev/pts"},
        {"op": "link", "target": "/dev/fd", "goal": "/proc/self/fd"},
        {"op": "link", "target": "/dev/stdin", "goal": "/proc/self/fd/0"},
        {"op": "link", "target": "/dev/stdout", "goal": "/proc/self/fd/1"},
        {"op": "link", "target": "/dev/stderr", "goal": "/proc/self/fd/2"},
    ]
    steps += [{"op": "bind", "source": f"/dev/{name}", "target": f"/dev/{name}", "optional": True} for name in DEVICES]
    steps += [{"op": "bind", "source": str(path), "target": str(path), "optional": True} for path in devices]
    places = (("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/root", 0o755), ("/home", 0o755))  # noqa: S108
    steps += [{"op": "directory", "target": path, "mode": mode} for path, mode in places]
    return steps


def is_reserved(target: str) -> bool:
    """Places a volume must not cover."""
    return os.path.normpath(target) in _PSEUDO | {"/"}
