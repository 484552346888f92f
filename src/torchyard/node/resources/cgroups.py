"""Memory and CPU limits by cgroups, where this user may create some: version 2 delegated, or version 1 as root.

Without cgroups the shim checks a container's memory itself, and a CPU limit only sets the number of threads.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_PERIOD = 100_000
_CONTROLLERS_V1 = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class CgroupSupport:
    """Where cgroups of containers may be created. `version` 0: nowhere."""

    version: int
    parents: tuple[Path, ...]
    description: str

    @property
    def enforced(self) -> bool:
        return self.version > 0


def find(root: Path = Path("/sys/fs/cgroup")) -> CgroupSupport:
    """The cgroups in which this process may create children."""
    if (root / "cgroup.controllers").exists():
        return _find_v2(root)
    parents = [root / name for name in _CONTROLLERS_V1 if os.access(root / name, os.W_OK)]
    if root / "memory" in parents and _can_create(root / "memory"):
        return CgroupSupport(1, tuple(parents), "cgroup version 1")
    return CgroupSupport(
        0, (), "no cgroups may be created: the shim checks memory, and a CPU limit sets the number of threads"
    )


def _find_v2(root: Path) -> CgroupSupport:
    own = _own_cgroup(root)
    for parent in (own, root) if os.geteuid() == 0 else (own,):
        controllers = _read_words(parent / "cgroup.controllers")
        if "memory" in controllers and os.access(parent / "cgroup.procs", os.W_OK) and _can_create(parent):
            return CgroupSupport(2, (parent,), f"cgroup version 2 under {parent}")
    hint = "start it with: systemd-run --user --scope -p Delegate=yes yard up"
    return CgroupSupport(0, (), f"no cgroup with a memory controller is delegated to this user ({hint})")


def _own_cgroup(root: Path) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return root / line[3:].lstrip("/")
    return root


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _can_create(parent: Path) -> bool:
    probe = parent / f"torchyard-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    probe.rmdir()
    return True


def prepare(support: CgroupSupport) -> None:
    """Version 2 allows processes in leaves only: move the agent into one, then delegate the controllers."""
    if support.version != 2:
        return
    parent = support.parents[0]
    agent = parent / "torchyard-agent"
    agent.mkdir(exist_ok=True)
    for pid in _read_words(parent / "cgroup.procs"):
        with contextlib.suppress(OSError):
            (agent / "cgroup.procs").write_text(pid)
    controllers = {"memory", "cpu", "pids"} & set(_read_words(parent / "cgroup.controllers"))
    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))


def _groups(support: CgroupSupport, uid: str, container: str) -> list[Path]:
    return [parent / f"torchyard-{uid}-{container}" for parent in support.parents]


def create(
    support: CgroupSupport, uid: str, container: str, *, memory: int | None, cpu_milli: int | None
) -> list[Path]:
    """The cgroups of one container, with its limits; a process joins them through `cgroup.procs`."""
    groups = _groups(support, uid, container)
    for group in groups:
        group.mkdir(exist_ok=True)
    settings = _settings_v2(memory, cpu_milli) if support.version == 2 else _settings_v1(memory, cpu_milli)
    for file, text in settings.items():
        for group in groups:
            if (group / file).exists():
                (group / file).write_text(text)
    return groups


def _settings_v2(memory: int | None, cpu_milli: int | None) -> dict[str, str]:
    settings = {"memory.oom.group": "1"}
    if memory is not None:
        settings |= {"memory.max": str(memory), "memory.swap.max": "0"}
    if cpu_milli is not None:
        settings["cpu.max"] = f"{max(1000, cpu_milli * _PERIOD // 1000)} {_PERIOD}"
    return settings


def _settings_v1(memory: int | None, cpu_milli: int | None) -> dict[str, str]:
    settings = {}
    if memory is not None:
        settings["memory.limit_in_bytes"] = str(memory)
    if cpu_milli is not None:
        settings["cpu.cfs_quota_us"] = str(max(1000, cpu_milli * _PERIOD // 1000))
    return settings


def remove(support: CgroupSupport, uid: str, container: str) -> None:
    """Remove the cgroups of a container whose last process has ended; without limits it has none."""
    for group in _groups(support, uid, container):
        with contextlib.suppress(OSError):
            group.rmdir()
