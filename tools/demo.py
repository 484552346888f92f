"""`make demo`: a plane from nothing, used as a person would use it, and cleaned up.

Starts `yard up` on a state directory of its own, runs a pod that trains a small model with the machine's torch (or,
where there is none, counts), follows its log, shows what `kubectl get` shows, and stops everything. `--keep` leaves the
plane running.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torchyard.kube.client import Client, Ref
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import load

PODS = Ref("", "v1", "pods")
PATIENCE = 300
PROGRAM = """
import sys, time
try:
    import torch
except ImportError:
    print("no torch in this environment: counting instead")
    for step in range(1, 6):
        print(f"step {step}/5"); sys.stdout.flush(); time.sleep(0.2)
    sys.exit(0)
torch.manual_seed(0)
x = torch.randn(4096, 32); y = (x @ torch.randn(32, 1)).tanh()
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(1, 201):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimiser.zero_grad(); loss.backward(); optimiser.step()
    if step % 40 == 0:
        print(f"step {step}/200 loss={loss.item():.4f}"); sys.stdout.flush()
"""
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first-training", "labels": {"app": "demo"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "pytorch/pytorch:latest",
                "command": ["python3", "-u", "-c", PROGRAM],
                "resources": {"requests": {"cpu": "1", "memory": "256Mi"}},
            }
        ],
    },
}


def say(line: str) -> None:
    print(line, flush=True)


def yard(*arguments: str, state: Path) -> str:
    """Run a `yard` command; its own words are shown when it fails."""
    command = [sys.executable, "-m", "torchyard.cli", *arguments, "--state", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)
    return done.stdout


async def train(kubeconfig: Path) -> str:
    """Create the pod, follow its log to the end, answer its phase."""
    client = Client(HttpTransport(load(kubeconfig), user_agent="demo"), manager="demo")
    try:
        await _until_account(client)
        await client.create(PODS, POD, "default")
        say("pod/first-training created")
        phase = await asyncio.wait_for(_phase(client, {"Running", "Succeeded", "Failed"}), PATIENCE)
        say(f"pod/first-training is {phase}")
        async for piece in client.logs(PODS, "first-training", "default", follow=True):
            for line in piece.decode(errors="replace").splitlines():
                say(f"  | {line}")
        return await asyncio.wait_for(_phase(client, {"Succeeded", "Failed"}), PATIENCE)
    finally:
        await client.close()


async def _until_account(client: Client) -> None:
    accounts = Ref("", "v1", "serviceaccounts")
    while await client.find(accounts, "default", "default") is None:
        await asyncio.sleep(0.05)


async def _phase(client: Client, wanted: set[str]) -> str:
    told = ""
    while True:
        pod = await client.get(PODS, "first-training", "default")
        phase = str(pod["status"].get("phase", ""))
        if phase in wanted:
            return phase
        for condition in pod["status"].get("conditions") or ():
            if condition.get("message", told) != told and condition["status"] == "False":
                told = condition["message"]
                say(f"pod/first-training waits: {told}")
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the plane running")
    arguments = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="torchyard-demo-"))
    python = Path(".venv-train/bin/python").absolute()
    options = ["--python", str(python)] if python.exists() else []
    try:
        say(yard("up", "--detach", "--port", "0", *options, state=state).splitlines()[0])
        kubeconfig = state / "kubeconfig"
        phase = asyncio.run(train(kubeconfig))
        if shutil.which("kubectl"):
            subprocess.run(["kubectl", "--kubeconfig", kubeconfig, "get", "pods,nodes"], check=True)
        say(f"the demo {'worked' if phase == 'Succeeded' else 'failed'}: the pod {phase}")
        if arguments.keep:
            say(f"next: export KUBECONFIG={kubeconfig}; kubectl describe pod first-training")
    finally:
        if not arguments.keep:
            yard("down", state=state)
            shutil.rmtree(state, ignore_errors=True)
    raise SystemExit(0 if phase == "Succeeded" else 1)


if __name__ == "__main__":
    main()
