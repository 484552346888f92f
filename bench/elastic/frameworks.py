"""C17: Hugging Face's Trainer and Lightning with and without the runtime, alone, at 50 ms a step and more.

It needs the packages of `make frameworks-venv`: run it with the Python of that environment.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile

from bench.elastic.common import HERE, median, show

ROUNDS = 3
PROGRAM = HERE / "hosted.py"


def c17() -> bool:
    met = True
    for package, name in (("transformers", "Hugging Face Trainer"), ("lightning", "Lightning")):
        if importlib.util.find_spec(package) is None:
            show("C17", name, f"needs {package}, which is not installed", "3 %", met=None)
            continue
        rounds = [(_step(package, "bare"), _step(package, "elastic")) for _ in range(ROUNDS)]
        bare, elastic = (median(times) for times in zip(*rounds, strict=True))
        extra = 100 * (elastic / bare - 1)
        each = ", ".join(f"{a:.1f}/{b:.1f}" for a, b in rounds)
        figures = f"{elastic:.1f} ms a step, bare {bare:.1f} ms: {extra:+.1f} % (rounds {each})"
        met &= show("C17", f"{name}, one worker", figures, "3 %", met=extra <= 3)
    return met


def _step(package: str, kind: str) -> float:
    """Return the median time of a step in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAM), package, kind, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout.split("median ")[1].split()[0])
