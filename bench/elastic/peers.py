"""How long other systems take to continue after a SIGKILL, measured in the same run: torchrun and torchft.

torchft is measured if it is installed (`pip install torchft`); otherwise the output says that it is not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.elastic.common import workspace

MLP = """
import os, sys, time, torch
torch.set_num_threads(1); torch.manual_seed(0)
x = torch.randn(4096, 784); y = torch.randint(0, 10, (4096,))
net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
def loss_of(model, step):
    part = slice(step * 64 % 4000, step * 64 % 4000 + 64)
    return torch.nn.functional.cross_entropy(model(x[part]), y[part])
log = open(f"{sys.argv[1]}/steps-{os.getpid()}", "w", buffering=1)
"""
TORCHRUN = (
    MLP
    + """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept, step = f"{sys.argv[1]}/kept.pt", 0
if os.path.exists(kept):
    held = torch.load(kept, weights_only=True); net.load_state_dict(held["net"]); step = held["step"]
while True:
    optimizer.zero_grad(); loss_of(model, step).backward(); optimizer.step(); step += 1
    if dist.get_rank() == 0:
        torch.save({"net": net.state_dict(), "step": step}, kept + ".new"); os.replace(kept + ".new", kept)
    log.write(f"{step} {time.time()}\\n")
"""
)
TORCHFT = (
    MLP
    + """
import logging
from datetime import timedelta
logging.disable(logging.CRITICAL)
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
descent = torch.optim.SGD(net.parameters(), 0.01)
def load(state): net.load_state_dict(state["net"]); descent.load_state_dict(state["descent"])
def save(): return {"net": net.state_dict(), "descent": descent.state_dict()}
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), load_state_dict=load, state_dict=save,
    min_replica_size=1, timeout=timedelta(seconds=10), quorum_timeout=timedelta(seconds=20), rank=0, world_size=1,
    store_addr="127.0.0.1", store_port=store.port, replica_id=f"r{sys.argv[2]}")
model, optimizer = DistributedDataParallel(manager, net), Optimizer(manager, descent)
while True:
    before = manager.current_step()
    optimizer.zero_grad(); loss_of(model, before).backward(); optimizer.step()
    if manager.current_step() > before:
        log.write(f"{manager.current_step()} {time.time()}\\n")
"""
)

# In a separate process, because it writes every quorum to its output.
LIGHTHOUSE = """
import time
from torchft.coordination import LighthouseServer
held = LighthouseServer(bind="0.0.0.0:{port}", min_replicas=1, {timing})
time.sleep(1000)
"""


def _reached(folder: Path) -> dict[int, float]:
    """Return when each step was first logged."""
    reached: dict[int, float] = {}
    for log in folder.glob("steps-*"):
        for line in log.read_text().splitlines():
            parts = line.split()
            if len(parts) == 2:
                reached[int(parts[0])] = min(float(parts[1]), reached.get(int(parts[0]), float("inf")))
    return reached


def _after_kill(folder: Path, victim: int, *, patience: float) -> float:
    """Return the milliseconds from the kill to the next new step; infinite if there is none."""
    before = max(_reached(folder), default=0)
    moment = time.time()
    os.kill(victim, signal.SIGKILL)
    while time.time() - moment < patience:
        time.sleep(0.05)
        later = [at for step, at in _reached(folder).items() if step > before + 1 and at > moment]
        if later:
            return (min(later) - moment) * 1000
    return float("inf")


def _running(folder: Path, workers: int, seconds: float = 90.0) -> list[int]:
    """Wait until all workers train, and return their process ids."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        logs = [log for log in folder.glob("steps-*") if len(log.read_text().splitlines()) > 30]
        if len(logs) >= workers:
            return [int(log.name.partition("-")[2]) for log in logs]
        time.sleep(0.2)
    raise TimeoutError("the workers did not start to train")


def _kill_workers(folder: Path) -> None:
    """Kill the workers of torchrun: each leads a session of its own, so a signal to torchrun's does not reach them.

    One that was just started has written no file yet, but would write to the directory while it is removed.
    """
    while pids := _processes_of(folder / "train.py"):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _processes_of(program: Path) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(program).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return pids


def torchrun(workers: int, *, patience: float = 40.0) -> float:
    """Restarts the whole group; here with a checkpoint at every step, so that no step is lost."""
    with workspace() as folder:
        (folder / "train.py").write_text(TORCHRUN)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        command += ["--max-restarts=10", str(folder / "train.py"), str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        group = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            victims = _running(folder, workers)
            return _after_kill(folder, victims[-1], patience=patience)
        finally:
            os.killpg(group.pid, signal.SIGKILL)
            group.wait()
            _kill_workers(folder)


def torchft(workers: int, *, tuned: bool, patience: float = 40.0) -> float | None:
    """Survivors continue after a quorum, without the dead worker's records of that step. None if not installed."""
    if importlib.util.find_spec("torchft") is None:
        return None
    timing = "join_timeout_ms=200, quorum_tick_ms=50, heartbeat_timeout_ms=1000" if tuned else ""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lighthouse = subprocess.Popen(
        [sys.executable, "-c", LIGHTHOUSE.format(port=port, timing=timing)], stdout=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    with workspace() as folder:
        (folder / "train.py").write_text(TORCHFT)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHFT_LIGHTHOUSE": address}
        command = [sys.executable, str(folder / "train.py"), str(folder)]
        ranks = [
            subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.DEVNULL)
            for rank in range(workers)
        ]
        try:
            _running(folder, workers)
            return _after_kill(folder, ranks[-1].pid, patience=patience)
        finally:
            for process in [*ranks, lighthouse]:
                process.kill()
                process.wait()


def compare(workers: int) -> str:
    """Return the figures of all systems as one line."""
    systems = [("torchrun", torchrun(workers)), ("torchft", torchft(workers, tuned=False))]
    systems.append(("torchft tuned", torchft(workers, tuned=True)))
    results = []
    for name, milliseconds in systems:
        if milliseconds is None:
            results.append(f"{name} not installed")
        else:
            results.append(f"{name} {milliseconds:.0f} ms" if milliseconds < 1e9 else f"{name} did not recover in 40 s")
    return ", ".join(results)
