"""`make demo`: start a plane, run a distributed training on it with `yard run`, and clean up.

The plane has a temporary state directory. The job is the PyTorchJob of examples/mnist-ddp: a master and three workers
train on the 60,000 images of MNIST for one epoch. `--keep` leaves the plane running.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load

PODS = GroupVersionResource("", "v1", "pods")
ROOT = Path(__file__).resolve().parents[1]
MANIFEST = Path("examples") / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"
JOB = "pytorch-dist-mnist-gloo-demo"
NEXT = """
What to look at next:
  {manifest}
      the manifest that ran; it works on a cluster too
  examples/mnist/mnist.py
      the training program in its image
  docs/tutorial.md, docs/pytorchjobs.md
      the same steps by hand, and what PyTorchJobs offer"""
STILL_RUNNING = """
The plane is still running:
  export KUBECONFIG={kubeconfig}
  kubectl describe pytorchjob {job}
  kubectl logs {job}-master-0
Stop it with:
  {yard} down --state {state} && rm -rf {state}"""


def say(line: str) -> None:
    print(line, flush=True)


def training_python() -> Path:
    """Return the interpreter of `make train-venv`, which has torch."""
    python = ROOT / ".venv-train" / "bin" / "python"
    has_torch = python.exists() and not subprocess.run([python, "-c", "import torch"], check=False).returncode
    if not has_torch:
        raise SystemExit(
            "error: torch is missing: this machine does not have it, and pip could not install it into .venv-train\n"
            "hint: see requirements/train.txt, then: rm -rf .venv-train && make demo"
        )
    return python


def yard(*arguments: str | Path, state: Path) -> list[str]:
    return [sys.executable, "-m", "torchyard.cli", *map(str, arguments), "--state", str(state)]


def run_checked(command: list[str]) -> str:
    """Run a command and return its output; exit with its error output when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)
    return done.stdout


async def accuracy(kubeconfig: Path) -> str:
    """Return the last accuracy in the master's log."""
    client = Client(HttpTransport(load(kubeconfig), user_agent="demo"), manager="demo")
    try:
        log = b"".join([piece async for piece in client.logs(PODS, f"{JOB}-master-0", "default")])
    finally:
        await client.close()
    values = re.findall(r"accuracy=0\.\d{4}", log.decode(errors="replace"))
    return values[-1] if values else "no accuracy"


def demo(state: Path, python: Path, manifest: Path) -> int:
    before = time.monotonic()
    say(run_checked(yard("up", "--detach", "--port", "0", "--python", python, state=state)).splitlines()[0])
    say(f"yard run {manifest} --yes")
    code = subprocess.run(yard("run", manifest, "--yes", state=state), check=False).returncode
    if code == 0:
        result = asyncio.run(accuracy(state / "kubeconfig"))
        say(f"\n{result} after one epoch on four replicas, {time.monotonic() - before:.0f} s in total")
    return code


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the plane running")
    parser.add_argument("--manifest", type=Path, default=MANIFEST, help="another job to run")
    arguments = parser.parse_args()
    python = training_python()
    state = Path(tempfile.mkdtemp(prefix="torchyard-demo-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up as after Ctrl-C
    try:
        code = demo(state, python, arguments.manifest)
        say(NEXT.format(manifest=arguments.manifest))
        if arguments.keep:
            command = f"{sys.executable} -m torchyard.cli"
            say(STILL_RUNNING.format(kubeconfig=state / "kubeconfig", job=JOB, yard=command, state=state))
    finally:
        if not arguments.keep:
            run_checked(yard("down", state=state))
            shutil.rmtree(state, ignore_errors=True)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
