"""`python -m bench.scale [KIND ...] [--sizes 1000,10000,50000]`: a line of figures per size, then their ratios.

The plane runs as a user runs it: all controllers and the node. At each size: the CPU of one creation (until everything
has settled), the CPU of an idle plane, its memory, the time of `kubectl get` of one object, and the time of a restart
until the first answer. Each figure should stay within 1.3 of its value at the first size. The memory grows with the
objects: its growth per object is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
from tests.support.kubernetes import assets
from tests.support.yard import Yard

from bench.scale.kinds import KINDS, Kind
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_CONCURRENT = 32
_IDLE_SECONDS = 10.0


@dataclass(frozen=True)
class Figures:
    create_cpu_ms: float
    idle_cpu_percent: float
    get_ms: float
    restart_s: float
    rss_mb: float


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _wait_until_idle(process: psutil.Process) -> float:
    """Wait until the plane uses little CPU; returns the share of a core that it uses then."""
    while True:
        before = _cpu(process)
        time.sleep(1.0)
        if _cpu(process) - before < 0.1:
            break
    before = _cpu(process)
    time.sleep(_IDLE_SECONDS)
    return (_cpu(process) - before) / _IDLE_SECONDS


async def _create(kubeconfig: Path, kind: Kind, numbers: range) -> None:
    async with open_client(load(kubeconfig), "bench") as client:
        pending = iter(numbers)

        async def create_all() -> None:
            for number in pending:
                obj = kind.make(number)
                await client.raw("POST", kind.path, obj)
                if kind.status is not None:
                    path = f"{kind.path}/{obj['metadata']['name']}/status"
                    current = await client.raw("GET", f"{kind.path}/{obj['metadata']['name']}")
                    await client.raw("PUT", path, {**current, "status": kind.status})

        await asyncio.gather(*(create_all() for _ in range(_CONCURRENT)))


def _get_ms(kubeconfig: Path, kind: Kind) -> float:
    """The best of five: one object by name."""
    kubectl = str((assets() or Path("/usr/bin")) / "kubectl")
    path = f"{kind.path}/{kind.make(0)['metadata']['name']}"
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(
            [kubectl, "--kubeconfig", kubeconfig, "get", "--raw", path], check=True, stdout=subprocess.DEVNULL
        )
        best = min(best, time.perf_counter() - started)
    return best * 1000


def _restart(yard: Yard, kind: Kind) -> float:
    yard.stop()
    started = time.monotonic()
    yard.kubeconfig.unlink()
    yard.launch().wait_until(yard.kubeconfig.exists, "its kubeconfig", pause=0.005)
    _get_ms(yard.kubeconfig, kind)
    return time.monotonic() - started


def measure(name: str, sizes: list[int]) -> list[Figures]:
    kind, results, created = KINDS[name], [], 0
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as directory:
        yard = Yard(Path(directory), controllers="*", flags=("--node",))
        try:
            yard.start()
            for size in sizes:
                process = _process(yard)
                _wait_until_idle(process)
                before = _cpu(process)
                asyncio.run(_create(yard.kubeconfig, kind, range(created, size)))
                idle = _wait_until_idle(process)
                spent = _cpu(process) - before - idle * _IDLE_SECONDS
                figures = Figures(
                    spent / (size - created) * 1000,
                    idle * 100,
                    _get_ms(yard.kubeconfig, kind),
                    _restart(yard, kind),
                    _process(yard).memory_info().rss / 1e6,
                )
                created = size
                results.append(figures)
                _print(name, size, figures)
        finally:
            yard.stop()
    return results


def _process(yard: Yard) -> psutil.Process:
    assert yard.process is not None
    return psutil.Process(yard.process.pid)


def _print(name: str, size: int, figures: Figures) -> None:
    values = ", ".join(f"{field.name} {getattr(figures, field.name):.2f}" for field in fields(Figures))
    print(f"{name} {size}: {values}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--sizes", default="1000,10000", help="how many objects, ascending")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    unknown = [name for name in options.kinds if name not in KINDS]
    if unknown:
        parser.error(f"unknown kinds: {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    for name in options.kinds or KINDS:
        results = measure(name, sizes)
        first, last = results[0], results[-1]
        ratios = ", ".join(
            f"{field.name} {getattr(last, field.name) / (getattr(first, field.name) or 1):.2f}"
            for field in fields(Figures)
            if field.name != "rss_mb"
        )
        per_object = (last.rss_mb - first.rss_mb) * 1000 / ((sizes[-1] - sizes[0]) or 1)
        print(f"{name}: {sizes[-1]} to {sizes[0]}: {ratios}; memory {per_object:.2f} kB per object", flush=True)


if __name__ == "__main__":
    main()
