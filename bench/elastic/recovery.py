"""C1, C4, C5, C6, C9, C11, C13: how long training stops when the world changes."""

from __future__ import annotations

import json
import math
import random
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.elastic import common, peers
from bench.elastic.common import first_times, show, workspace
from bench.quantiles import quantile
from torchyard.elastic.chaos import ChaosJob
from torchyard.elastic.checkpoint.files import newest_valid

ENDLESS = ("--epochs", "2000")
GOODPUT_TARGETS = {5.0: 97.0, 15.0: 99.0}


def _signal_and_measure(chaos: ChaosJob, folder: Path, signal_number: int, victim: str) -> float:
    """Signal one worker; return the milliseconds until a world without it applies a new step."""
    before = chaos.request("/status") or {}
    moment = time.time()
    chaos.signal_worker(victim, signal_number)
    time.sleep(0.5)  # a status request takes CPU time from the recovery
    chaos.wait_until(
        lambda status: victim not in status["world"] and status["phase"] == "Running", seconds=60, every=0.1
    )
    chaos.wait_until(lambda status: status["step"] >= before.get("step", 0) + 3, seconds=60, every=0.1)
    without = [
        row["at"]
        for row in common.steps(folder)
        if row["at"] > moment and row["world"] < len(before.get("world", ())) and row["who"] != victim
    ]
    return (min(without) - moment) * 1000 if without else float("nan")


def recovery_times(workers: int, kills: int, *arguments: str, lease: float = 1.0) -> list[float]:
    """Return the milliseconds from SIGKILL to the next step for each kill; every dead worker is replaced first."""
    with workspace() as folder:
        pauses = []
        with ChaosJob(common.options(folder, *ENDLESS, *arguments, workers=workers, lease=lease)) as chaos:
            for _ in range(kills):
                chaos.wait_until(
                    lambda status: len(status["world"]) == workers and status["phase"] == "Running",
                    seconds=120,
                    every=0.1,
                )
                time.sleep(random.uniform(0.3, 0.8))
                pauses.append(
                    _signal_and_measure(chaos, folder, signal.SIGKILL, random.choice(sorted(chaos.workers())))
                )
    return [pause for pause in pauses if not math.isnan(pause)]


def c1(kills: int = 20, *, with_peers: bool = True) -> bool:
    met = True
    for workers, p50, p99 in ((2, 80, 200), (3, 80, 200), (4, 150, 300)):
        pauses = recovery_times(workers, kills)
        middle, worst = common.median(pauses), quantile(pauses, 0.99)
        figures = f"p50 {middle:.0f} ms, p99 {worst:.0f} ms of {len(pauses)} kills"
        reached = middle <= p50 and worst <= p99
        met &= show("C1", f"SIGKILL 1 of {workers} to the next step", figures, f"p50 {p50}, p99 {p99}", met=reached)
    if with_peers:
        show("C1", "SIGKILL 1 of 2, others", peers.compare(2), "", met=None)
    return met


def c4() -> bool:
    with workspace() as folder, ChaosJob(common.options(folder, *ENDLESS, workers=2)) as chaos:
        chaos.wait_step(20)
        chaos.wait_until(lambda status: len(status["world"]) == 2)
        pids = chaos.workers()
        hung, survivor = sorted(pids)[:2]
        pause = _signal_and_measure(chaos, folder, signal.SIGSTOP, hung) / 1000
        same = chaos.workers().get(survivor) == pids[survivor]
        chaos.signal_worker(hung)
    figures = f"{pause:.2f} s, survivor's process {'unchanged' if same else 'CHANGED'} (gloo alone waits 30 min)"
    return show("C4", "SIGSTOP 1 of 2 until training continues", figures, "1.5 s", met=pause <= 1.5 and same)


def _longest_gap(folder: Path, since: float) -> float:
    times = [at for at, _ in first_times(folder) if at > since]
    return max((after - before for before, after in pairwise(times)), default=float("nan")) * 1000


def c5() -> bool:
    met = True
    with workspace() as folder, ChaosJob(common.options(folder, *ENDLESS, "--hidden", "1024", workers=2)) as chaos:
        chaos.wait_step(30)
        for workers in (3, 4, 2):
            time.sleep(1)
            before = [at for at, _ in first_times(folder)][-60:]
            usual = common.median([b - a for a, b in pairwise(before)]) * 1000
            moment = time.time()
            chaos.request("/scale", {"workers": workers})
            chaos.wait_until(
                lambda status, n=workers: len(status["world"]) == n and status["phase"] == "Running",
                seconds=60,
                every=0.2,
            )
            time.sleep(0.7)
            added = _longest_gap(folder, moment) - usual
            scenario = f"scale to {workers} (10 MB state)"
            met &= show("C5", scenario, f"added pause {added:.0f} ms", "100 ms, 0 recomputed", met=added <= 100)
    return met


def c6() -> bool:
    met = True
    for cold, target in ((False, 0.6), (True, 4.0)):
        with workspace() as folder:
            settings = common.options(folder, *ENDLESS, workers=1)
            settings = type(settings)(
                settings.command, settings.directory, workers=1, max_workers=8, quiet=True, zygote=not cold
            )
            with ChaosJob(settings) as chaos:
                chaos.wait_step(20, seconds=300)
                time.sleep(1)
                moment = time.time()
                chaos.request("/scale", {"workers": 2})
                chaos.wait_until(lambda status: len(status["world"]) == 2, seconds=120, every=0.2)
                time.sleep(0.5)
                joined = [row["at"] for row in common.steps(folder) if row["world"] == 2]
            spent = min(joined, default=float("nan")) - moment
        kind = "cold" if cold else "zygote"
        met &= show(
            "C6", f"from the request to taking part, {kind}", f"{spent:.2f} s", f"{target} s", met=spent <= target
        )
    return met


def c9() -> bool:
    """Workers and coordinator are killed, and shared memory is lost: only checkpoints and the ledger remain."""
    with workspace() as folder:
        sizes = ("--epochs", "12")
        alone = common.digest_alone(*sizes)
        checkpoints = ("--checkpoints", str(folder / "kept"), "--checkpoint-every", "50")
        settings = common.options(folder, *sizes, *checkpoints, workers=2)
        with ChaosJob(settings) as chaos:
            chaos.wait_step(150, seconds=300)
            chaos.wait_until(lambda status: newest_valid(folder / "kept") is not None, seconds=60, every=0.2)
            for name in chaos.workers():
                chaos.signal_worker(name)
            chaos.kill_coordinator()
            chaos.shut_down()
            chaos.wait(60)
        reached = max(step for _, step in first_times(folder))
        sound = newest_valid(folder / "kept")
        durable = sound[1].step if sound else 0
        moment = time.time()
        with ChaosJob(settings) as again:
            stop = again.wait(300)
        at, resumed = min((row["at"], row["step"]) for row in common.steps(folder) if row["at"] > moment)
        spent, same = at - moment, stop.message.split()[-1] == alone
    figures = f"{spent:.1f} s to step {resumed:.0f}, the first after the last durable one of {reached} applied, "
    figures += f"sha256 {'equal' if same else 'DIFFERS'}"
    met = spent <= 6 and resumed == durable + 1 and same
    return show("C9", "everything killed, restarted from disk", figures, "6 s, same model", met=met)


def c11(
    *arguments: str,
    seconds: float = 60.0,
    targets: Mapping[float, float] = GOODPUT_TARGETS,
    fleets: Sequence[int] = (5, 4),
    label: str = "",
    keep: Path | None = None,
) -> bool:
    """A step has four micro-batches: a fifth worker stands by, and replaces a lost one at once.

    Args:
        arguments: further arguments of the training program.
        seconds: how long workers are killed.
        targets: the goodput to reach in percent, by the seconds between two kills; judged for the first fleet.
        fleets: numbers of workers; four of them train.
        label: what is special about this run.
        keep: a directory for the steps, kills and events of each run, as JSON.
    """
    met = True
    for every, target in targets.items():
        for workers in fleets:
            goodput, phases = _goodput(every, seconds, arguments, workers=workers, keep=keep)
            spare = "a fifth worker that stands by" if workers > 4 else "a replacement that is forked"
            scenario = " ".join([f"a kill every {every:.0f} s, 4 workers and {spare}", label or " ".join(arguments)])
            judged = goodput >= target if workers == fleets[0] else None
            met &= show("C11", scenario, f"goodput {goodput:.1f} % ({phases})", f"{target:.0f} %", met=judged)
    return met


def c11w(seconds: float = 60.0) -> bool:
    """As C11 with a kill every 5 s, but a micro-batch only waits 20 ms: what remains is the overhead of the runtime.

    The model is tiny, so four workers do not compete for the cores of a small machine.
    """
    sizes = ("--features", "16", "--hidden", "16")
    return c11(*sizes, seconds=seconds, targets={5.0: 97.0}, label="micro-batches that only wait")


def _goodput(
    every: float, seconds: float, arguments: Sequence[str], *, workers: int, keep: Path | None
) -> tuple[float, str]:
    """Return the useful time in percent, and where the rest went.

    The useful time is that of the applied steps at the usual pace of four workers.
    """
    with workspace() as folder:
        with ChaosJob(common.options(folder, *ENDLESS, "--sleep", "0.02", *arguments, workers=workers)) as chaos:
            calm_periods = [_measure_calm(chaos, workers)]
            begun, kills = time.time(), []
            while time.time() - begun < seconds:
                time.sleep(every)
                world = sorted((chaos.request("/status") or {})["world"])
                kills.append(time.time())
                chaos.signal_worker(random.choice(world))
            time.sleep(1)
            ended = time.time()
            calm_periods.append(_measure_calm(chaos, workers))
            events = chaos.request("/events") or []
        rows = [at for at, _ in first_times(folder)]
        logged = common.steps(folder)
        rows_by_world = [(row["at"], row["world"]) for row in logged]
    if keep is not None:
        run = {"begun": begun, "ended": ended, "calm": calm_periods, "kills": kills, "events": events, "steps": logged}
        (keep / f"goodput-{workers}-workers-every-{every:.0f}-s.json").write_text(json.dumps(run))
    applied = sum(1 for at in rows if begun <= at <= ended)
    # The usual pace is measured before and after, because the drift of a machine would look like good or bad recovery.
    # It is their mean: the jitter of a machine makes it a few percent more than the median, with and without kills.
    calm = [[b - a for a, b in pairwise(rows) if first <= a and b <= last] for first, last in calm_periods]
    usual = statistics.fmean([gap for period in calm for gap in period])
    short = sum(b - a for (a, size), (b, _) in pairwise(rows_by_world) if begun <= a <= ended and size < 4)
    figures = _phases(events, begun) | {"until the next step": common.median(_pauses(rows, kills)) * 1000}
    phases = ", ".join(f"{name} {value:.0f} ms" for name, value in figures.items())
    disturbed = [b - a for a, b in pairwise(rows) if begun <= a and b <= ended]
    phases += f"; {len(kills)} kills, {1000 * usual:.1f} ms a step, {short:.1f} s with fewer than four workers"
    # A mean far above its median, or two calm periods that differ, mean that the machine and not the recovery was slow.
    phases += "; median/mean ms calm " + ", ".join(map(_median_and_mean, calm))
    phases += f", disturbed {_median_and_mean(disturbed)}"
    return min(100.0, 100 * applied * usual / (ended - begun)), phases


def _median_and_mean(gaps: list[float]) -> str:
    return f"{1000 * common.median(gaps):.1f}/{1000 * sum(gaps) / max(1, len(gaps)):.1f}"


def _pauses(rows: list[float], kills: list[float]) -> list[float]:
    """Return the longest time between two steps after each kill."""
    gaps = list(pairwise(rows))
    return [max((b - a for a, b in gaps if b > kill and a < kill + 2), default=0.0) for kill in kills]


def _phases(events: list[dict[str, Any]], begun: float) -> dict[str, float]:
    """Return the median of each phase of the recoveries, in milliseconds."""
    phases: dict[str, list[float]] = {}
    for event in events:
        for name, value in (event.get("facts") or {}).items():
            if name.endswith("_ms") and event.get("at", begun) >= begun:
                phases.setdefault(f"{event['reason']}.{name[:-3]}", []).append(float(value))
    return {name: common.median(values) for name, values in sorted(phases.items())}


def _measure_calm(chaos: ChaosJob, workers: int, seconds: float = 6.0) -> tuple[float, float]:
    """Return a period with four workers in the world, all others ready, and no status requests."""
    chaos.wait_until(
        lambda status: len(status["world"]) == 4 and len(status["workers"]) == workers and status["phase"] == "Running",
        seconds=180,
        every=0.5,
    )
    time.sleep(1)
    begun = time.time()
    time.sleep(seconds)
    return begun, time.time()


MICRO = 0.01


def c13() -> bool:
    """Four workers, one of them three times slower.

    The best split of 16 micro-batches at relative speeds 3, 3, 3, 1 is 5, 5, 5, 1: one more at full speed than the four
    of every worker when none is slow, which is measured first.
    """
    sizes = ("--sleep", str(MICRO), "--micro-batches", "16", "--batch", "128")
    even, _ = _four(*sizes)
    slow, shifted = _four(*sizes, "--slow", "-1")
    ideal = even * 5 / 4
    ratio = slow / ideal
    figures = f"{slow * 1000:.0f} ms a step, {ratio:.2f}x the ideal {ideal * 1000:.0f} ms; "
    figures += "no micro-batch moved" if shifted is None else f"moved after {shifted} steps"
    met = ratio <= 1.25 and shifted is not None and shifted <= 30
    return show("C13", "one of 4 at a third of the speed", figures, "1.25x within 30 steps", met=met)


def _four(*arguments: str) -> tuple[float, int | None]:
    """Return the final step time of four workers, and after how many steps micro-batches moved."""
    with workspace() as folder:
        with ChaosJob(common.options(folder, *ENDLESS, *arguments, workers=4)) as chaos:
            start = chaos.wait_until(lambda status: len(status["world"]) == 4, seconds=120, every=0.2)["step"]
            chaos.wait_until(lambda status: status["step"] >= start + 120, seconds=120, every=0.5)
            events = chaos.request("/events") or []
        began = [event for event in events if event["reason"] == "WorldBegan" and "is slow" in event["message"]]
        times = first_times(folder)
    late = [b[0] - a[0] for a, b in pairwise(times) if a[1] > start + 60]
    return common.median(late), began[0]["facts"]["step"] - start if began else None
