"""Limits by cgroups, where this user may create some: version 2 delegated, or version 1 as root.

Memory and CPU are limited per container, processes per pod (see `shim.pids`). Without cgroups the shim checks a
container's memory itself, a CPU limit only sets the number of threads, and nothing limits the processes of one pod.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.node.shim import pids

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PidsLimit

_PERIOD = 100_000
# The largest limits that the kernel takes: its counters count pages in a signed long, and a quota in microseconds has
# 44 bits. No machine has as much memory or as many CPUs, so a container under the larger limit of its spec is as
# unlimited. Written as they are, some kernels refuse larger numbers, others let them overflow.
MAX_MEMORY = (1 << 63) - (1 << 16)  # whole pages of every page size
_MAX_QUOTA = (1 << 44) - 1
_CONTROLLERS_V1 = ("memory", "cpu")
_PIDS_BASE, _PIDS_PER_CPU = 1024, 128  # a rank of a training job has threads for each CPU


@dataclass(frozen=True, slots=True)
class CgroupSupport:
    """Where cgroups of containers may be created. `version` 0: nowhere."""

    version: int
    parents: tuple[Path, ...]
    description: str
    pids: Path | None = None  # where the groups of pods are created; None: their processes cannot be limited

    @property
    def enforced(self) -> bool:
        return self.version > 0


def find(root: Path = Path("/sys/fs/cgroup")) -> CgroupSupport:
    """The cgroups in which this process may create children."""
    if (root / "cgroup.controllers").exists():
        return _find_v2(root)
    pids_parent = root / "pids" if (root / "pids").is_dir() and _can_create(root / "pids") else None
    parents = [root / name for name in _CONTROLLERS_V1 if os.access(root / name, os.W_OK)]
    if root / "memory" in parents and _can_create(root / "memory"):
        return CgroupSupport(1, tuple(parents), "cgroup version 1", pids_parent)
    return CgroupSupport(
        0,
        (),
        "no cgroups may be created: the shim checks memory, and a CPU limit sets the number of threads",
        pids_parent,
    )


def _find_v2(root: Path) -> CgroupSupport:
    own = _own_cgroup(root)
    for parent in (own, root) if os.geteuid() == 0 else (own,):
        controllers = _read_words(parent / "cgroup.controllers")
        if "memory" in controllers and os.access(parent / "cgroup.procs", os.W_OK) and _can_create(parent):
            pids_parent = parent if "pids" in controllers else None
            return CgroupSupport(2, (parent,), f"cgroup version 2 under {parent}", pids_parent)
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
    (parent / "cgroup.subtree_control").write_text(_delegated_controllers(parent))


def _delegated_controllers(parent: Path) -> str:
    controllers = {"memory", "cpu", "pids"} & set(_read_words(parent / "cgroup.controllers"))
    return " ".join(f"+{name}" for name in sorted(controllers))


def default_pids_limit() -> int:
    """Enough for training with threads and data loaders on every CPU, too few for a fork bomb to hurt the machine."""
    return _PIDS_BASE + _PIDS_PER_CPU * (os.cpu_count() or 1)


def pids_limit(support: CgroupSupport, limit: int) -> PidsLimit | None:
    """The limit as shims enforce it; None without a limit (-1), or where it cannot be enforced."""
    if support.pids is None or limit < 0:
        return None
    delegate = _delegated_controllers(support.pids) if support.version == 2 else ""
    return {"parent": str(support.pids), "limit": limit, "delegate": delegate}


def _groups(support: CgroupSupport, uid: str, container: str, shim_pid: int | None) -> list[Path]:
    """A container's group is below that of the pod, where there is one."""
    pods = _pod_groups(support, uid, shim_pid)
    parents = [pod if pod.is_dir() else parent for pod, parent in zip(pods, support.parents, strict=True)]
    return [parent / f"torchyard-{uid}-{container}" for parent in parents]


def _pod_groups(support: CgroupSupport, uid: str, shim_pid: int | None) -> list[Path]:
    """The groups of a pod: in version 2, with its one hierarchy, the group that limits the pod's processes."""
    if support.version == 2 and support.pids and shim_pid:
        return [Path(pids.group_of(str(support.pids), shim_pid))]
    return [parent / f"torchyard-{uid}" for parent in support.parents]


def limit_pod(
    support: CgroupSupport, uid: str, *, memory: int | None, cpu_milli: int | None, shim_pid: int | None = None
) -> None:
    """Limit all containers of a pod together. Call it before the groups of its containers are created."""
    groups = _pod_groups(support, uid, shim_pid)
    for group in groups:
        group.mkdir(exist_ok=True)
        if (group / "memory.use_hierarchy").exists():  # version 1; always so since Linux 5.11
            with contextlib.suppress(OSError):
                (group / "memory.use_hierarchy").write_text("1")
        if (group / "cgroup.subtree_control").exists():
            (group / "cgroup.subtree_control").write_text(_delegated_controllers(group))
    _write_limits(support, groups, memory, cpu_milli)


def create(
    support: CgroupSupport,
    uid: str,
    container: str,
    *,
    memory: int | None,
    cpu_milli: int | None,
    shim_pid: int | None = None,
) -> list[Path]:
    """The cgroups of one container, with its limits; a process joins them through `cgroup.procs`."""
    groups = _groups(support, uid, container, shim_pid)
    for group in groups:
        group.mkdir(exist_ok=True)
    _write_limits(support, groups, memory, cpu_milli)
    return groups


def _write_limits(support: CgroupSupport, groups: list[Path], memory: int | None, cpu_milli: int | None) -> None:
    settings = _settings_v2(memory, cpu_milli) if support.version == 2 else _settings_v1(memory, cpu_milli)
    for file, text in settings.items():
        for group in groups:
            if (group / file).exists():
                (group / file).write_text(text)


def _settings_v2(memory: int | None, cpu_milli: int | None) -> dict[str, str]:
    settings = {"memory.oom.group": "1"}
    if memory is not None:
        settings |= {"memory.max": str(min(memory, MAX_MEMORY)), "memory.swap.max": "0"}
    if cpu_milli is not None:
        settings["cpu.max"] = f"{_quota(cpu_milli)} {_PERIOD}"
    return settings


def _settings_v1(memory: int | None, cpu_milli: int | None) -> dict[str, str]:
    settings = {}
    if memory is not None:
        settings["memory.limit_in_bytes"] = str(min(memory, MAX_MEMORY))
    if cpu_milli is not None:
        settings["cpu.cfs_quota_us"] = str(_quota(cpu_milli))
    return settings


def _quota(cpu_milli: int) -> int:
    """The microseconds of CPU time in a period. The kernel takes no less than a millisecond."""
    return min(max(1000, cpu_milli * _PERIOD // 1000), _MAX_QUOTA)


def remove(support: CgroupSupport, uid: str, container: str, *, shim_pid: int | None = None) -> None:
    """Remove the cgroups of a container whose last process has ended; without limits it has none."""
    for group in _groups(support, uid, container, shim_pid):
        with contextlib.suppress(OSError):
            group.rmdir()


def remove_pod(support: CgroupSupport, shim_pid: int | None, *, uid: str = "") -> None:
    """Remove the groups of a pod whose shim has ended, after those of its containers."""
    if support.version == 1 and uid:
        for group in _pod_groups(support, uid, shim_pid):
            with contextlib.suppress(OSError):
                group.rmdir()
    if support.pids and shim_pid:
        pids.remove(str(support.pids), shim_pid)
