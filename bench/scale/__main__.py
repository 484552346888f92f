"""`python -m bench.scale [KIND ...] [--sizes 1000,10000,50000]`: a line of figures per size, then their ratios.

The plane runs as a user runs it: all controllers and the node. At each size: the CPU of one creation (until everything
has settled) and the rate of the creations, the CPU of an idle plane, the time of `kubectl get` of one object, the time
of a restart until the first answer, the CPU of the restart until everything has settled, and the memory after it. With
waiting pods also the time from the end of a pod until the next pod that fits has its node. Each figure should stay
within 1.3 of its value at the first size; the memory and the CPU of a restart grow with the objects, and their growth
per object is printed.

The creations that are measured are requests. The other objects of each size are copied into the store of the stopped
plane (see `fill`).
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
from tests.support.yard import yard as run_yard

from bench.scale.fill import fill
from bench.scale.freed import freed_milliseconds
from bench.scale.kinds import KINDS, PREPARED, Kind, Object
from torchyard.api.errors import StatusError
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_CONCURRENT = 32
# Created first, not measured; the templates of the objects that are copied.
_TEMPLATES = 200
# Created at each size, and measured.
_MEASURED = 800
# Longer than the period of everything that runs periodically.
_IDLE_SECONDS = 31.0
_CONFLICT = 409
_GROWS = ("rss_mb", "restart_cpu_s")


@dataclass(frozen=True)
class Figures:
    create_cpu_ms: float
    creates_per_s: float
    idle_cpu_percent: float
    get_ms: float
    freed_ms: float
    restart_s: float
    restart_cpu_s: float
    rss_mb: float


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _waited_for_cpu(process: psutil.Process) -> float:
    """The seconds that the plane has waited for a CPU, which other programs may use."""
    try:
        return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # a kernel without it
        return 0.0


def _settle(process: psutil.Process) -> None:
    """Wait until the plane neither uses nor wants much CPU for three seconds."""
    quiet = 0
    while quiet < 3:
        before = _cpu(process) + _waited_for_cpu(process)
        time.sleep(1.0)
        quiet = quiet + 1 if _cpu(process) + _waited_for_cpu(process) - before < 0.1 else 0


def _idle(process: psutil.Process) -> float:
    """The share of a core that an idle plane uses."""
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
                    await _put_status(client, f"{kind.path}/{obj['metadata']['name']}", kind.status)

        await asyncio.gather(*(create_all() for _ in range(_CONCURRENT)))


async def _put_status(client: Client, path: str, status: Object) -> None:
    """Again after a conflict: the controller of the object writes its status, too."""
    while True:
        current = await client.raw("GET", path)
        try:
            await client.raw("PUT", f"{path}/status", {**current, "status": status})
        except StatusError as error:
            if error.status != _CONFLICT:
                raise
        else:
            return


def _get_ms(kubeconfig: Path, kind: Kind, *, rounds: int = 5) -> float:
    """`kubectl get` of one object by name; the best of some."""
    kubectl = str((assets() or Path("/usr/bin")) / "kubectl")
    path = f"{kind.path}/{kind.make(0)['metadata']['name']}"
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(
            [kubectl, "--kubeconfig", kubeconfig, "get", "--raw", path], check=True, stdout=subprocess.DEVNULL
        )
        best = min(best, time.perf_counter() - started)
    return best * 1000


def _restart(yard: Yard, kind: Kind) -> tuple[float, float]:
    """Seconds until the first answer, and seconds of CPU until everything has settled."""
    yard.stop()
    yard.kubeconfig.unlink()
    started = time.monotonic()
    yard.launch().wait_until(yard.kubeconfig.exists, "its kubeconfig", pause=0.005)
    _get_ms(yard.kubeconfig, kind, rounds=1)
    seconds = time.monotonic() - started
    _settle(_process(yard))
    return seconds, _cpu(_process(yard))


def _measure_size(yard: Yard, name: str, size: int, existing: int) -> Figures:
    kind = KINDS[name]
    first = size - _MEASURED
    if first > existing:
        yard.stop()
        rows = fill(yard.state / "store.db", range(_TEMPLATES), range(existing, first))
        print(f"{name} {size}: copied {first - existing} objects ({rows} rows) into the store", flush=True)
        yard.start()
    _settle(_process(yard))
    before, started = _cpu(_process(yard)), time.monotonic()
    asyncio.run(_create(yard.kubeconfig, kind, range(first, size)))
    seconds = time.monotonic() - started
    _settle(_process(yard))
    spent = _cpu(_process(yard)) - before
    idle = _idle(_process(yard))
    freed = asyncio.run(freed_milliseconds(yard.kubeconfig)) if name == "pods-waiting" else 0.0
    return Figures(
        spent / _MEASURED * 1000,
        _MEASURED / seconds,
        idle * 100,
        _get_ms(yard.kubeconfig, kind),
        freed,
        *_restart(yard, kind),
        _process(yard).memory_info().rss / 1e6,
    )


def measure(name: str, sizes: list[int]) -> list[Figures]:
    results: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as directory:
        yard = Yard(Path(directory), controllers="*", flags=("--node",))
        try:
            yard.start()
            for prepared, count in KINDS[name].prepare.items():
                asyncio.run(_create(yard.kubeconfig, PREPARED[prepared], range(count)))
            asyncio.run(_create(yard.kubeconfig, KINDS[name], range(_TEMPLATES)))
            _settle(_process(yard))
            existing = _TEMPLATES
            for size in sizes:
                figures = _measure_size(yard, name, size, existing)
                existing = size
                results.append(figures)
                _print(name, size, figures)
        finally:
            yard.stop()
            run_yard("down", state=yard.state, timeout=120)
    return results


def _process(yard: Yard) -> psutil.Process:
    assert yard.process is not None
    if not yard.process.running:
        raise SystemExit(f"the plane ended with {yard.process.returncode}:\n{yard.process.log_tail()}")
    return psutil.Process(yard.process.pid)


def _print(name: str, size: int, figures: Figures) -> None:
    values = ", ".join(f"{field.name} {getattr(figures, field.name):.2f}" for field in fields(Figures))
    print(f"{name} {size}: {values}", flush=True)


def _print_ratios(name: str, sizes: list[int], results: list[Figures]) -> None:
    first, last = results[0], results[-1]
    ratios = ", ".join(
        f"{field.name} {getattr(last, field.name) / (getattr(first, field.name) or 1):.2f}"
        for field in fields(Figures)
        if field.name not in _GROWS
    )
    objects = (sizes[-1] - sizes[0]) or 1
    memory, cpu = ((getattr(last, figure) - getattr(first, figure)) / objects * 1000 for figure in _GROWS)
    print(
        f"{name}: {sizes[-1]} to {sizes[0]}: {ratios}; per object: memory {memory:.2f} kB, restart {cpu:.3f} ms of CPU",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument(
        "--sizes", default="1000,10000", help=f"how many objects, ascending, at least {_MEASURED} apart"
    )
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if any(later - earlier < _MEASURED for earlier, later in zip([_TEMPLATES, *sizes], sizes, strict=False)):
        parser.error(
            f"--sizes {options.sizes}: start with {_TEMPLATES + _MEASURED}, then at least {_MEASURED} more each"
        )
    unknown = [name for name in options.kinds if name not in KINDS]
    if unknown:
        parser.error(f"unknown kinds: {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    for name in options.kinds or KINDS:
        _print_ratios(name, sizes, measure(name, sizes))


if __name__ == "__main__":
    main()
