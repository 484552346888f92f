"""How much CPU and memory containers use, from /proc: the numbers behind `kubectl top`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Cumulated CPU seconds and the present working set of a group of processes."""

    when: float  # on the monotonic clock
    cpu_seconds: float
    memory: int


def sample(leaders: dict[str, int]) -> dict[str, UsageSample]:
    """One walk over /proc for all containers: key → pid of its first process. Containers that ended are left out."""
    by_namespace = {}
    for key, pid in leaders.items():
        namespace = _pid_namespace(pid)
        if namespace:
            by_namespace[namespace] = key
    totals: dict[str, list[float]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        owner = by_namespace.get(_pid_namespace(pid) or "") or _by_session(pid, leaders)
        used = _used(pid) if owner else None
        if owner and used:
            total = totals.setdefault(owner, [0.0, 0])
            total[0] += used[0]
            total[1] += used[1]
    now = time.monotonic()
    return {key: UsageSample(now, cpu, int(memory)) for key, (cpu, memory) in totals.items()}


_OWN = Path("/proc/self/ns/pid").stat().st_ino if Path("/proc/self/ns/pid").exists() else 0


def _pid_namespace(pid: int) -> str | None:
    """The pid namespace of a container's process; None for the agent's own namespace, or without permission."""
    try:
        inode = Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return None
    return None if inode == _OWN else str(inode)


def _by_session(pid: int, leaders: dict[str, int]) -> str | None:
    if not leaders:
        return None
    try:
        session = os.getsid(pid)
    except OSError:
        return None
    return next((key for key, leader in leaders.items() if leader == session), None)


def _used(pid: int) -> tuple[float, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICK, int(fields[21]) * _PAGE


class UsageSampler:
    """Computes rates from the last two samples."""

    def __init__(self) -> None:
        self._before: dict[str, UsageSample] = {}
        self._now: dict[str, UsageSample] = {}

    def take(self, leaders: dict[str, int]) -> None:
        self._before, self._now = self._now, sample(leaders)

    def cpu(self, key: str) -> float:
        """Cores used since the previous sample."""
        now, before = self._now.get(key), self._before.get(key)
        if now is None or before is None or now.when <= before.when:
            return 0.0
        return max(0.0, (now.cpu_seconds - before.cpu_seconds) / (now.when - before.when))

    def memory(self, key: str) -> int:
        now = self._now.get(key)
        return now.memory if now else 0

    @property
    def keys(self) -> list[str]:
        return list(self._now)

    @property
    def window(self) -> float:
        if not self._now or not self._before:
            return 0.0
        return next(iter(self._now.values())).when - next(iter(self._before.values())).when
