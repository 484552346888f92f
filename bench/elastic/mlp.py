"""The benchmark's training program: MLP 784-512-10 on synthetic records, with a log line for every step."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from torchyard import elastic
from torchyard.elastic.world.runtime import WorkerRuntime

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=20000)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--micro-batches", type=int, default=4)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--mode", default="strict")
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--features", type=int, default=784)
parser.add_argument("--log", default="")
parser.add_argument("--hold", default="")
parser.add_argument("--hold-pause", type=float, default=0.0)
parser.add_argument("--slow", default="", help="the worker whose name ends so computes three times as long")
parser.add_argument("--snapshot-every", type=int, default=0)
parser.add_argument("--checkpoints", default="")
parser.add_argument("--checkpoint-every", type=int, default=100)
parser.add_argument("--sleep", type=float, default=0.0, help="seconds of extra compute per micro-batch")
parser.add_argument("--device", default="cpu")
parser.add_argument("--digest-every", type=int, default=50)
args = parser.parse_args()

job = elastic.join(seed=7)
source = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(
    torch.randn(args.records, args.features, generator=source),
    torch.randint(0, 10, (args.records,), generator=source),
)
with torch.device(args.device):
    model = torch.nn.Sequential(
        torch.nn.Linear(args.features, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 10)
    )
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
name = os.environ.get("TORCHYARD_ELASTIC_WORKER", "alone")
drag = args.sleep * (3 if args.slow and name.endswith(args.slow) else 1)


def loss_of(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    if drag:
        time.sleep(drag)
    inputs, labels = (part.to(args.device) for part in batch)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


compare_states = WorkerRuntime.compare_states
comparisons: list[float] = []


def timed_comparison(*arguments: Any) -> None:
    """Measure how long a comparison of states takes, with the wait for the other workers."""
    begun = time.perf_counter()
    compare_states(*arguments)
    comparisons.append(time.perf_counter() - begun)


WorkerRuntime.compare_states = timed_comparison  # type: ignore[method-assign]
saving = elastic.Checkpoints(args.checkpoints, every=args.checkpoint_every) if args.checkpoints else None
log = Path(f"{args.log}-{name}").open("a", buffering=1) if args.log else None  # noqa: SIM115  # until the end
for step in job.train(
    model,
    optimizer,
    loss=loss_of,
    data=data,
    batch=args.batch,
    micro_batches=args.micro_batches,
    epochs=args.epochs,
    mode=args.mode,
    snapshot_every=args.snapshot_every,
    checkpoints=saving,
    digest_every=args.digest_every,
):
    if log is not None:
        row = {"step": step.number, "at": time.time(), "world": step.world, "rank": step.rank, "who": name}
        row["compared"] = sum(comparisons)
        log.write(json.dumps(row) + "\n")
    if args.hold and not Path(args.hold).exists():
        time.sleep(args.hold_pause)
print(f"digest {job.digest} after {job.recomputed_steps} recomputed", flush=True)
