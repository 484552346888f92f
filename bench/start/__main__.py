"""`python -m bench.start`: seconds from the command to the first answer, ours, the peer's, and the ratio.

Ours is `yard up --detach` and then `kubectl get namespaces`, with all controllers and the node: with a new state
directory (cold), with its own again (warm), and with stores of many objects. `account` is the time until the default
service account exists, which a controller creates: from then on pods can be created. The CPU is that of the command
and the plane until the answer. The peer is etcd, kube-apiserver, kube-controller-manager and kube-scheduler until the
default service account exists; it needs the binaries of a real Kubernetes (KUBEBUILDER_ASSETS).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.support.kubernetes import ROOT, Kubernetes, assets

from bench.scale.fill import fill
from bench.scale.kinds import KINDS
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load

_CONCURRENT = 32
# Created by requests, of each kind; the others are copies. Each kind has numbers of its own.
_TEMPLATES, _NUMBERS = 200, 100_000
STORES = {
    "12,000 ConfigMaps": {"configmaps": 12_000},
    "8,000 Jobs": {"jobs-suspended": 8_000},
    "50,000 objects": {"configmaps": 30_000, "jobs-suspended": 10_000, "events": 10_000},
}


@dataclass(frozen=True)
class Start:
    answer_s: float
    account_s: float
    cpu_s: float


def _kubectl(kubeconfig: Path, *arguments: str) -> bool:
    kubectl = str((assets() or Path("/usr/bin")) / "kubectl")
    command = [kubectl, "--kubeconfig", str(kubeconfig), "get", *arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _yard(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout


def _start(state: Path) -> Start:
    """Start a plane, measure, and stop it."""
    children = sum(os.times()[2:4])
    begun = time.monotonic()
    _yard("up", "--detach", "--port", "0", "--state", str(state))
    cpu_s = sum(os.times()[2:4]) - children
    if not _kubectl(state / "kubeconfig", "namespaces"):
        raise SystemExit("the plane does not answer")
    answer_s = time.monotonic() - begun
    cpu_s += _plane_cpu(state)
    while not _kubectl(state / "kubeconfig", "serviceaccount", "default"):
        pass
    account_s = time.monotonic() - begun
    _yard("down", "--state", str(state))
    return Start(answer_s, account_s, cpu_s)


def _plane_cpu(state: Path) -> float:
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        if "up" in (process.info["cmdline"] or ()) and str(state) in process.info["cmdline"]:
            times = process.info["cpu_times"]
            return float(times.user + times.system)
    return 0.0


def _peer(directory: Path) -> float:
    begun = time.monotonic()
    with Kubernetes(directory, controllers="*", scheduler=True, fsync=True) as server:
        if not _kubectl(server.kubeconfig, "namespaces"):
            raise SystemExit("the peer does not answer")
        return time.monotonic() - begun


def _fill(state: Path, objects: dict[str, int]) -> None:
    """Create some objects of each kind in a plane without controllers, and copy them in its store."""
    starts = {name: number * _NUMBERS for number, name in enumerate(objects)}
    _yard("up", "--detach", "--no-node", "--port", "0", "--state", str(state), "--controllers", "-*")
    asyncio.run(_create(state / "kubeconfig", starts))
    _yard("down", "--state", str(state))
    for name, count in objects.items():
        start = starts[name]
        fill(state / "store.db", range(start, start + _TEMPLATES), range(start + _TEMPLATES, start + count))


async def _create(kubeconfig: Path, starts: dict[str, int]) -> None:
    pending = ((KINDS[name], start + number) for name, start in starts.items() for number in range(_TEMPLATES))
    async with open_client(load(kubeconfig), "bench") as client:

        async def create() -> None:
            for kind, number in pending:
                await client.raw("POST", kind.path, kind.make(number))

        await asyncio.gather(*(create() for _ in range(_CONCURRENT)))


def _print(name: str, starts: list[Start], peer_s: float | None) -> None:
    best = min(starts, key=lambda start: start.answer_s)
    every = " ".join(f"{start.answer_s:.2f}" for start in starts)
    ratio = f", {best.answer_s / peer_s:.2f} of the peer" if peer_s else ""
    accounts = min(start.account_s for start in starts)
    print(f"{name}: answer {best.answer_s:.2f} s ({every}), account {accounts:.2f} s, CPU {best.cpu_s:.2f} s{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="starts of each kind; the best one counts")
    parser.add_argument("--no-peer", action="store_true", help="measure ours only")
    parser.add_argument("--no-stores", action="store_true", help="leave out the stores of many objects")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-start-") as temporary:
        root = Path(temporary)
        _start(root / "first")  # compiles what is not compiled yet
        peers, cold, warm = [], [], []
        for number in range(options.rounds):  # in turns: a machine is not always as fast
            if not options.no_peer:
                peers.append(_peer(root / f"peer-{number}"))
            cold.append(_start(root / f"state-{number}"))
            warm.append(_start(root / f"state-{number}"))
        peer_s = min(peers) if peers else None
        if peer_s:
            print(f"peer: {peer_s:.2f} s ({' '.join(f'{seconds:.2f}' for seconds in peers)})")
        _print("cold", cold, peer_s)
        _print("warm", warm, peer_s)
        for name, objects in {} if options.no_stores else STORES.items():
            state = root / name.replace(" ", "-")
            _fill(state, objects)
            _print(name, [_start(state) for _ in range(options.rounds)], peer_s)


if __name__ == "__main__":
    main()
