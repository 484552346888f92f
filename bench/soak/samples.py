"""Memory, file size, log lines and processes over time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Sample:
    minute: float
    memory_mb: float
    file_mb: float
    log_lines_per_s: float
    processes: int


class Sampler:
    """Takes samples of a plane and everything that was started for it."""

    def __init__(self, state: Path, log: Path, pid: Callable[[], int]) -> None:
        self._state, self._log, self._pid = state, log, pid
        self._started = self._sampled = time.monotonic()
        self._log_lines, self._log_position = 0, 0
        self.samples: list[Sample] = []

    def sample(self) -> Sample:
        now = time.monotonic()
        lines = self._new_log_lines()
        taken = Sample(
            (now - self._started) / 60,
            self._memory() / 1e6,
            self._file_size() / 1e6,
            lines / max(now - self._sampled, 0.001),
            len(self.processes()),
        )
        self._sampled = now
        self.samples.append(taken)
        return taken

    def _memory(self) -> int:
        try:
            return int(psutil.Process(self._pid()).memory_info().rss)
        except psutil.NoSuchProcess:  # it was killed and is being started
            return 0

    def _file_size(self) -> int:
        return sum(file.stat().st_size for file in self._state.glob("store.db*"))

    def _new_log_lines(self) -> int:
        with self._log.open("rb") as file:
            file.seek(self._log_position)
            new = file.read()
        self._log_position += len(new)
        return new.count(b"\n")

    def processes(self) -> list[psutil.Process]:
        """The processes that name the state directory: the plane, its zygote, and one shim per pod."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(self._state) in word for word in process.info["cmdline"] or ())
        ]


def flatness(samples: list[Sample]) -> dict[str, float]:
    """The mean of the last fifth of the time over that of the fifth in the middle, for each figure."""
    total = samples[-1].minute
    middle = [sample for sample in samples if 0.4 * total <= sample.minute < 0.6 * total]
    last = [sample for sample in samples if sample.minute >= 0.8 * total]
    ratios = {}
    for field in fields(Sample)[1:]:
        before, after = (
            sum(getattr(sample, field.name) for sample in part) / max(len(part), 1) for part in (middle, last)
        )
        ratios[field.name] = after / before if before else 1.0
    return ratios


def write_table(samples: list[Sample], path: Path) -> None:
    names = [field.name for field in fields(Sample)]
    lines = ["\t".join(names), *("\t".join(f"{getattr(sample, name):.2f}" for name in names) for sample in samples)]
    path.write_text("\n".join(lines) + "\n")
