"""`python -m bench.soak --minutes 60 [--svg FILE] [--table FILE]`: random work of every kind, and kills, for a while.

Prints a line of figures every minute, then what was done, how the last fifth of the time compares with the fifth in the
middle, and what is left. Fails if memory or file size have grown, if a process is left over, or if the log is flooded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from random import Random

from tests.support.yard import Yard, yard

from bench.soak.kills import Kills
from bench.soak.picture import svg
from bench.soak.samples import Sample, Sampler, flatness, write_table
from bench.soak.work import Work
from torchyard.api.errors import YardError
from torchyard.api.gvr import NAMESPACES
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_SAMPLE_SECONDS = 5.0
# What counts as flat, and as a flood.
_MAX_MEMORY_RATIO, _MAX_FILE_RATIO, _MAX_LOG_LINES_PER_S = 1.15, 1.3, 20.0
# The plane, the zygote and its spare shims, the namespace holder.
_MAX_PROCESSES_LEFT = 8
_END_SECONDS = 180.0


async def _sample(sampler: Sampler) -> None:
    while True:
        await asyncio.sleep(_SAMPLE_SECONDS)
        sampler.sample()
        if len(sampler.samples) % 12 == 0:
            print(_line(sampler.samples[-12:]), flush=True)


def _line(samples: list[Sample]) -> str:
    means = {field.name: sum(getattr(s, field.name) for s in samples) / len(samples) for field in fields(Sample)[1:]}
    return f"minute {samples[-1].minute:.0f}: " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())


async def _delete_namespaces(client: Client) -> None:
    """Delete everything that the work has left, and wait until it is gone."""
    deadline = time.monotonic() + _END_SECONDS
    while True:
        namespaces = [n for n in (await client.list(NAMESPACES)).items if n["metadata"]["name"].startswith("soak-")]
        if not namespaces:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"still there: {[(n['metadata']['name'], n.get('status')) for n in namespaces]}")
        for namespace in namespaces:
            with contextlib.suppress(YardError):
                await client.delete(NAMESPACES, namespace["metadata"]["name"])
        await asyncio.sleep(1)


async def _run(plane: Yard, sampler: Sampler, minutes: float, pause: float, seed: int) -> None:
    async with open_client(load(plane.kubeconfig), "soak") as client:
        work = Work(client, Random(seed), pause=pause)
        kills = Kills(plane, Random(seed + 1), period=45.0, plane_seconds=minutes * 60 / 3)
        tasks = [asyncio.create_task(part) for part in (work.run(), kills.run(), _sample(sampler))]
        done, _ = await asyncio.wait(tasks, timeout=minutes * 60, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()
        print(f"work: {dict(work.counts)}; requests that failed: {work.failures}; killed: {dict(kills.counts)}")
        await _delete_namespaces(client)


def problems(sampler: Sampler) -> list[str]:
    """What is not as it has to be after a run."""
    ratios, samples = flatness(sampler.samples), sampler.samples
    left = sampler.processes()
    log_rate = sum(sample.log_lines_per_s for sample in samples) / len(samples)
    checks = {
        f"memory grew by {ratios['memory_mb']:.2f}": ratios["memory_mb"] <= _MAX_MEMORY_RATIO,
        f"the store's file grew by {ratios['file_mb']:.2f}": ratios["file_mb"] <= _MAX_FILE_RATIO,
        f"{log_rate:.1f} log lines per second": log_rate <= _MAX_LOG_LINES_PER_S,
        f"processes left: {[' '.join(process.info['cmdline'])[-80:] for process in left]}": len(left)
        <= _MAX_PROCESSES_LEFT,
    }
    return [problem for problem, is_well in checks.items() if not is_well]


def soak(directory: Path, minutes: float, *, pause: float = 0.3, seed: int = 1) -> Sampler:
    """Run a soak in a directory; the caller looks at the samples and at `problems`."""
    plane = Yard(directory, controllers="*", flags=("--node",))
    try:
        plane.start()

        def pid() -> int:
            return plane.process.pid if plane.process is not None else 0

        sampler = Sampler(plane.state, plane.log, pid)
        asyncio.run(_run(plane, sampler, minutes, pause, seed))
        time.sleep(5)
        print(
            f"middle to last fifth: { ({name: round(ratio, 3) for name, ratio in flatness(sampler.samples).items()}) }"
        )
        print("problems:", "; ".join(problems(sampler)) or "none", flush=True)
        return sampler
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two pieces of work of a client")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, help="where to draw the curves")
    parser.add_argument("--table", type=Path, help="where to write the samples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as directory:
        sampler = soak(Path(directory), options.minutes, pause=options.pause, seed=options.seed)
    if options.svg:
        options.svg.write_text(svg(sampler.samples, f"A plane under random work for {options.minutes:.0f} minutes"))
    if options.table:
        write_table(sampler.samples, options.table)


if __name__ == "__main__":
    main()
