"""`python -m bench.cli [version] [ps] [sync] [run] [testing]`: the daily commands, in seconds; all by default.

version: CPU of `yard --version`; goal 0.15 s.
ps: `yard ps` on a plane with 20 jobs, wall clock and CPU; goal 0.4 s.
sync: a folder of 1,000 files packed and sent again after one file has changed; goal 0.5 s.
run: from the command to the first training step of a second `yard run`, and of torchrun alone in the same environment;
  goal 1.05 of torchrun. Needs an environment with torch: --python.
testing: torchyard.testing, until a plane is ready and until its state is fresh again; goals 1.0 s and 0.05 s.

Each is measured --times times; the best and all are printed. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes import ROOT

from torchyard.core.run.script_job import ScriptJob, archive_objects
from torchyard.jobs.workspace import pack
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_JOBS, _FILES = 20, 1000
_TRAIN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(64, 64)
loss = model(torch.ones(8, 64)).sum()
loss.backward()
dist.all_reduce(model.weight.grad)
print(f"step 1/1 loss={loss.item():.3f}", flush=True)
dist.destroy_process_group()
"""
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def _yard(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "torchyard.cli", *arguments]


def _timed(command: list[str], cwd: Path | None = None) -> tuple[float, float]:
    """Seconds and CPU seconds of a command."""
    before, begun = sum(os.times()[2:4]), time.monotonic()
    subprocess.run(command, check=True, capture_output=True, env=_ENVIRONMENT, cwd=cwd)
    return time.monotonic() - begun, sum(os.times()[2:4]) - before


@contextmanager
def _plane(*options: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        subprocess.run(_yard("up", "--detach", "--port", "0", "--state", str(state), *options),
                       check=True, capture_output=True, env=_ENVIRONMENT)  # fmt: skip
        try:
            yield state
        finally:
            subprocess.run(_yard("down", "--state", str(state)), check=False, capture_output=True, env=_ENVIRONMENT)


def _print(name: str, seconds: list[float], goal: float | None = None) -> None:
    every = " ".join(f"{value:.3f}" for value in seconds)
    print(f"{name}: {min(seconds):.3f} s ({every})" + (f"; goal {goal:g} s" if goal else ""), flush=True)


def version(times: int, _: str) -> None:
    _print("yard --version, CPU", [_timed(_yard("--version"))[1] for _ in range(times)], 0.15)


def ps(times: int, _: str) -> None:
    with _plane("--no-node") as state:
        asyncio.run(_create_jobs(state / "kubeconfig"))
        measured = [_timed(_yard("ps", "--state", str(state))) for _ in range(times)]
    _print("yard ps", [wall for wall, _ in measured], 0.4)
    _print("yard ps, CPU", [cpu for _, cpu in measured], 0.4)


async def _create_jobs(kubeconfig: Path) -> None:
    container = {"name": "pytorch", "image": "busybox", "command": ["true"]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    async with open_client(load(kubeconfig), "bench") as client:
        for number in range(_JOBS):
            job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": f"job-{number}"},
                   "spec": {"pytorchReplicaSpecs": {"Master": replica}}}  # fmt: skip
            await client.raw("POST", "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", job)


def sync(times: int, _: str) -> None:
    with _plane("--no-node") as state, tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for number in range(_FILES):
            (folder / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 50)
        _print(f"{_FILES} files again", asyncio.run(_sync(folder, state / "kubeconfig", times)), 0.5)


async def _sync(folder: Path, kubeconfig: Path, times: int) -> list[float]:
    seconds = []
    async with open_client(load(kubeconfig), "bench") as client:
        for number in range(times + 1):
            (folder / "module_0.py").write_text(f"VALUE = {-number}\n")
            begun = time.monotonic()
            for archive in archive_objects(ScriptJob(f"sync-{number}", "module_0.py"), pack(folder)):
                await client.raw("POST", "/api/v1/namespaces/default/configmaps", archive)
            seconds.append(time.monotonic() - begun)
    return seconds[1:]


def run(times: int, python: str) -> None:
    with _plane("--python", python) as state, tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "train.py").write_text(_TRAIN)
        bare = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
        ours = _yard("run", "train.py", "--nproc", "2", "--state", str(state))
        for command in (bare, ours):  # the first of each reads files that the others find in memory
            _first_step(command, folder)
        pairs = [(_first_step(bare, folder), _first_step(ours, folder)) for _ in range(times)]
    _print("torchrun to the first step", [pair[0] for pair in pairs])
    _print("yard run to the first step", [pair[1] for pair in pairs])
    ratio = min(pair[1] for pair in pairs) / min(pair[0] for pair in pairs)
    print(f"yard run / torchrun: {ratio:.3f}; goal 1.05", flush=True)


def _first_step(command: list[str], folder: Path) -> float:
    begun = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=_ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        seconds = 0.0
        for line in process.stdout:
            lines.append(line)
            if "step 1/1" in line and not seconds:
                seconds = time.monotonic() - begun
    if not seconds:
        raise SystemExit(f"{' '.join(command)} made no step:\n{''.join(lines[-20:])}")
    return seconds


def testing(times: int, _: str) -> None:
    from torchyard.testing import LocalPlane

    starts, resets = [], []
    for _ in range(times):
        begun = time.monotonic()
        with LocalPlane() as plane:
            starts.append(time.monotonic() - begun)
            for number in range(10):
                metadata = {"name": f"a-{number}", "namespace": "default"}
                plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            begun = time.monotonic()
            plane.reset()
            resets.append(time.monotonic() - begun)
    _print("torchyard.testing, a plane", starts, 1.0)
    _print("torchyard.testing, a fresh state", resets, 0.05)


MEASUREMENTS: dict[str, Callable[[int, str], None]] = {
    "version": version, "ps": ps, "sync": sync, "run": run, "testing": testing
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*MEASUREMENTS, []], default=[])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--python", default=str(ROOT / ".venv-train/bin/python"), help="An interpreter with torch.")
    arguments = parser.parse_args()
    for name in arguments.what or MEASUREMENTS:
        MEASUREMENTS[name](arguments.times, arguments.python)


if __name__ == "__main__":
    main()
