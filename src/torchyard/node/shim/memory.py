"""A container's memory limit: OOM kills of the kernel where cgroups are delegated, else a sum over its processes."""

from __future__ import annotations

import os


class OomCounter:
    """Counts the OOM kills in a container's cgroups since its start."""

    def __init__(self, cgroups: list[str]) -> None:
        self._cgroups = cgroups
        self._before = self._kills()

    def _kills(self) -> int:
        total = 0
        for path in self._cgroups:
            for name in ("memory.events", "memory.oom_control"):  # cgroup v2, v1
                try:
                    with open(f"{path}/{name}") as text:
                        total += sum(int(line.split()[1]) for line in text if line.startswith("oom_kill "))
                except OSError:
                    continue
        return total

    def increased(self) -> bool:
        return self._kills() > self._before


def used_by(container_pid: int, *, own_namespace: bool) -> int:
    """Anonymous memory of a container's processes in bytes. Shared pages have no owner and are not counted."""
    total = 0
    group = _process_group(str(container_pid), own_namespace=own_namespace)
    if group is None:
        return 0
    for name in os.listdir("/proc"):
        if name.isdigit() and _process_group(name, own_namespace=own_namespace) == group:
            total += _anonymous(name)
    return total


def _process_group(pid: str, *, own_namespace: bool) -> str | None:
    """What the processes of one container share: their pid namespace, or else their session."""
    try:
        if own_namespace:
            return os.readlink(f"/proc/{pid}/ns/pid")
        with open(f"/proc/{pid}/stat") as text:
            return text.read().rpartition(")")[2].split()[3]
    except (OSError, IndexError):
        return None


def _anonymous(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/status") as text:
            for line in text:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
