"""The demo's training on the plane, and the same program under bare torchrun: what the plane costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "examples" / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"
PROGRAM = ROOT / "examples" / "mnist" / "mnist.py"
REPLICAS = 4


def measure(python: str, limit: int, rounds: int) -> str:
    """Wall times from the command to its end, in turn; the plane is up already, as a cluster would be."""
    alone, planed = [], []
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        manifest = _manifest(Path(directory), limit)
        _yard("up", "--detach", "--port", "0", "--python", python, state=state)
        try:
            for _ in range(rounds):
                alone.append(_timed(_torchrun(python, limit)))
                planed.append(_timed([*_command(), "run", str(manifest), "--replace", "--state", str(state)]))
        finally:
            _yard("down", state=state)
    ratio = min(planed) / min(alone)
    times = f"torchrun {min(alone):.1f} s, plane {min(planed):.1f} s, ratio {ratio:.2f}"
    return f"one epoch of {limit or 60000} images on {REPLICAS} replicas, best of {rounds}: {times}"


def _manifest(directory: Path, limit: int) -> Path:
    job = yaml.safe_load(MANIFEST.read_text())
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        container = replica["template"]["spec"]["containers"][0]
        container["args"] += ["--limit", str(limit), "--no-cuda"]
        container["env"] = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def _torchrun(python: str, limit: int) -> list[str]:
    run = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={REPLICAS}"]
    return [*run, str(PROGRAM), "--limit", str(limit), "--no-cuda"]


def _command() -> list[str]:
    return [sys.executable, "-m", "torchyard.cli"]


def _yard(*arguments: str, state: Path) -> None:
    subprocess.run([*_command(), *arguments, "--state", str(state)], check=True, stdout=subprocess.DEVNULL)


def _timed(command: list[str]) -> float:
    begun = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return time.monotonic() - begun
