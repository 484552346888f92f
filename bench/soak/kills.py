"""Kills of the plane, its zygote and shims during a soak."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from random import Random

from tests.support.yard import Yard


class Kills:
    """Kills until cancelled; the plane only during the first `plane_seconds`, so that its memory is one curve then."""

    def __init__(self, yard: Yard, random: Random, *, period: float, plane_seconds: float) -> None:
        self._yard, self._random = yard, random
        self._period, self._plane_seconds = period, plane_seconds
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            await asyncio.sleep(self._period * (0.5 + self._random.random()))
            names = ["zygote", "shim", "shim"]
            if loop.time() - started < self._plane_seconds:
                names += ["plane", "plane"]
            name = self._random.choice(names)
            if name == "plane":
                self._yard.kill()
                await asyncio.to_thread(self._yard.start)
                self.counts[name] += 1
            elif self._kill_node_process(name):
                self.counts[name] += 1

    def _kill_node_process(self, name: str) -> bool:
        node = self._yard.state / "node"
        locks = [node / "zygote.lock"] if name == "zygote" else sorted((node / "pods").glob("*/shim.lock"))
        return bool(locks) and _kill(self._random.choice(locks), node)


def _kill(lock: Path, node: Path) -> bool:
    """Kill the process that a lock file names, if it still runs and is one of the node."""
    try:
        pid = int(lock.read_text())
        if str(node).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True
