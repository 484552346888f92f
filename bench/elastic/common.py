"""What the benchmarks share: the training program, its step log, and how a result is printed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchyard.elastic.run import RunOptions

HERE = Path(__file__).parent
PROGRAM = HERE / "mlp.py"


@contextmanager
def workspace() -> Iterator[Path]:
    # A process that was killed may create one more file while its directory is removed.
    with tempfile.TemporaryDirectory(prefix="bench-elastic-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def options(folder: Path, *arguments: str, workers: int = 2, max_workers: int = 8, lease: float = 1.0) -> RunOptions:
    command = (sys.executable, str(PROGRAM), "--log", str(folder / "steps"), *arguments)
    return RunOptions(command, folder / "job", workers=workers, max_workers=max_workers, lease=lease, quiet=True)


def digest_alone(*arguments: str) -> str:
    """The sha256 an undisturbed run of one process ends with."""
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]


def steps(folder: Path) -> list[dict[str, float]]:
    """Every step any worker applied, by time: {step, at, world, compute}."""
    rows = []
    for log in folder.glob("steps*"):
        for line in log.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue  # its writer was killed in the middle of it
    return sorted(rows, key=lambda row: row["at"])


def first_times(folder: Path) -> list[tuple[float, int]]:
    """Return when each step was first applied, by any worker."""
    seen: dict[int, float] = {}
    for row in steps(folder):
        seen.setdefault(int(row["step"]), row["at"])
    return sorted((at, step) for step, at in seen.items())


def show(name: str, label: str, figures: str, target: str, *, met: bool | None) -> bool:
    verdict = {True: "met", False: "MISSED", None: "not judged"}[met]
    print(f"{name:<4} {label}: {figures} | target {target} | {verdict}", flush=True)
    return met is not False


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
