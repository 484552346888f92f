"""The benchmark's training program: MLP 784-512-10 on synthetic records, with a log line for every step."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch

from torchyard import elastic

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
given = parser.parse_args()

job = elastic.join(seed=7)
source = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(
    torch.randn(given.records, given.features, generator=source),
    torch.randint(0, 10, (given.records,), generator=source),
)
with torch.device(given.device):
    model = torch.nn.Sequential(
        torch.nn.Linear(given.features, given.hidden), torch.nn.ReLU(), torch.nn.Linear(given.hidden, 10)
    )
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
name = os.environ.get("TORCHYARD_ELASTIC_WORKER", "alone")
drag = given.sleep * (3 if given.slow and name.endswith(given.slow) else 1)


def loss_of(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    if drag:
        time.sleep(drag)
    inputs, labels = (part.to(given.device) for part in batch)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


saving = elastic.Checkpoints(given.checkpoints, every=given.checkpoint_every) if given.checkpoints else None
log = Path(f"{given.log}-{name}").open("a", buffering=1) if given.log else None  # noqa: SIM115  # until the end
for step in job.train(
    model,
    optimizer,
    loss=loss_of,
    data=data,
    batch=given.batch,
    micro_batches=given.micro_batches,
    epochs=given.epochs,
    mode=given.mode,
    snapshot_every=given.snapshot_every,
    checkpoints=saving,
):
    if log is not None:
        row = {"step": step.number, "at": time.time(), "world": step.world, "rank": step.rank, "who": name}
        log.write(json.dumps(row) + "\n")
    if given.hold and not Path(given.hold).exists():
        time.sleep(given.hold_pause)
print(f"digest {job.digest} after {job.recomputed_steps} recomputed", flush=True)
