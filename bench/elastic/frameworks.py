"""C17 and C18: Hugging Face's Trainer and Lightning with and without the runtime, and under kills.

They need the packages of `make frameworks-venv`: run them with the Python of that environment.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from bench.elastic.common import HERE, median, show, workspace
from torchyard.elastic.chaos import ChaosJob
from torchyard.elastic.run import RunOptions

ROUNDS = 3
PROGRAM = HERE / "hosted.py"
NAMES = {"transformers": "Hugging Face Trainer", "lightning": "Lightning"}
SIZES = {
    ("transformers", "cpu"): ("--width", "128", "--layers", "2", "--tokens", "64"),
    ("transformers", "cuda"): ("--width", "768", "--layers", "6", "--tokens", "512"),
    ("lightning", "cpu"): ("--width", "128", "--layers", "2", "--tokens", "16"),
    ("lightning", "cuda"): ("--width", "512", "--layers", "3", "--tokens", "512"),
}
"""Models whose steps take 50 ms or more on one core, and on a large GPU."""


def _installed(benchmark: str) -> Iterator[str]:
    for package, name in NAMES.items():
        alternatives = (package, "pytorch_lightning") if package == "lightning" else (package,)
        if any(importlib.util.find_spec(alternative) for alternative in alternatives):
            yield package
        else:
            show(benchmark, name, f"needs {package}, which is not installed", "", met=None)


def c17(device: str = "cpu", *, rounds: int = ROUNDS, steps: int = 60, packages: Sequence[str] = tuple(NAMES)) -> bool:
    """The Trainer alone, and the same program with the runtime, in turns."""
    met = True
    for package in (package for package in _installed("C17") if package in packages):
        sizes = (*SIZES[package, device], "--device", device, "--steps", str(steps))
        # The comparison is with the Trainer that computes the same micro-batches.
        alone = "bare" if package == "transformers" else "accumulating"
        kinds = tuple(dict.fromkeys(("bare", alone, "strict", "fast")))
        times = [[_step(package, kind, sizes) for kind in kinds] for _ in range(rounds)]
        medians = {kind: median([each[index] for each in times]) for index, kind in enumerate(kinds)}
        all_rounds = ", ".join("/".join(f"{each:.1f}" for each in row) for row in times)
        for mode in ("strict", "fast"):
            extra = 100 * (medians[mode] / medians[alone] - 1)
            figures = f"{medians[mode]:.1f} ms a step, {alone} {medians[alone]:.1f} ms: {extra:+.1f} % "
            figures += f"(rounds of {'/'.join(kinds)}: {all_rounds})"
            label = f"{NAMES[package]}, {mode} mode, one worker, {device}"
            met &= show("C17", label, figures, "3 %", met=extra <= 3)
    return met


def _step(package: str, kind: str, sizes: Sequence[str]) -> float:
    """Return the median time of a step in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAM), package, kind, folder, *sizes]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    if done.returncode:
        raise RuntimeError(f"{package} {kind}: {done.stderr[-2000:]}")
    return float(done.stdout.split("median ")[1].split()[0])


def c18(device: str = "cpu", *, kills: int = 6, steps: int = 300) -> bool:
    """Workers are killed and their number changes: the model is that of an undisturbed run."""
    met = True
    for package in _installed("C18"):
        with workspace() as folder:
            program = [sys.executable, str(PROGRAM), package, "strict", str(folder / "out")]
            program += [*SIZES[package, "cpu"], "--device", device, "--steps", str(steps)]
            alone = subprocess.run(program, capture_output=True, text=True, check=True, timeout=300)
            digest = alone.stdout.split("digest ")[1].split()[0]
            with ChaosJob(RunOptions(tuple(program), folder / "job", workers=2, max_workers=4, quiet=True)) as chaos:
                killed, resized = _disturb(chaos, kills)
                stop = chaos.wait(300)
        same = stop.message.split()[-1] == digest
        figures = f"{killed} kills and {resized} resizes, sha256 {'equal' if same else 'DIFFERS: ' + stop.message}"
        met &= show("C18", f"{NAMES[package]} on {device}", figures, "same model", met=same and killed > 0)
    return met


def _disturb(chaos: ChaosJob, kills: int) -> tuple[int, int]:
    rng = random.Random(1)
    killed = resized = 0
    while chaos.alive and killed < kills:
        try:
            status = chaos.wait_until(
                lambda status: len(status["world"]) > 1 and status["phase"] == "Running", seconds=60, every=0.05
            )
        except TimeoutError:
            break  # the job has ended
        chaos.signal_worker(rng.choice(sorted(status["world"])))
        killed += 1
        if killed % 2 == 0 and chaos.request("/scale", {"workers": rng.choice([2, 3, 4])}):
            resized += 1
        time.sleep(rng.uniform(0.2, 1.0))
    return killed, resized
