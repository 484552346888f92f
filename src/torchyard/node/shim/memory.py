"""A container's memory limit: the kernel's own where cgroups are delegated, otherwise watched from here."""

from __future__ import annotations

import os


class OomCounter:
    """The cgroups a container was put in, and whether the kernel ran out of patience with one since."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._before = self._kills()

    def _kills(self) -> int:
        total = 0
        for path in self._paths:
            for name in ("memory.events", "memory.oom_control"):  # cgroup v2, v1
                try:
                    with open(f"{path}/{name}") as text:
                        total += sum(int(line.split()[1]) for line in text if line.startswith("oom_kill "))
                except OSError:
                    continue
        return total

    def were_exhausted(self) -> bool:
        return self._kills() > self._before


def used_by(container_pid: int, *, own_namespace: bool) -> int:
    """Anonymous memory of a container's processes in bytes (shared pages are nobody's, so they are not counted)."""
    total = 0
    mark = _mark(str(container_pid), own_namespace=own_namespace)
    if mark is None:
        return 0
    for name in os.listdir("/proc"):
        if name.isdigit() and _mark(name, own_namespace=own_namespace) == mark:
            total += _anonymous(name)
    return total


def _mark(pid: str, *, own_namespace: bool) -> str | None:
    """What processes of one container have in common: their pid namespace, or else their session."""
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
