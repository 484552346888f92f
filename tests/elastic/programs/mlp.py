"""A small training program for tests: synthetic records, a two-layer model with dropout, AdamW."""

from __future__ import annotations

import argparse
import os
import select
import time
from pathlib import Path
from typing import Any

import torch

from torchyard import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int, default=600)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--micro-batches", type=int, default=4)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--mode", default="strict")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--hold", default="", help="go slowly until this file is there")
parser.add_argument("--stick", default="", help="the worker whose name ends so hangs at its third step")
parser.add_argument("--poison", type=int, default=-1, help="a record that cannot be read")
parser.add_argument("--hold-pause", type=float, default=0.1)
parser.add_argument("--snapshot-every", type=int, default=0)
parser.add_argument("--checkpoints", default="")
args = parser.parse_args()

job = elastic.join(seed=7)
source = torch.Generator().manual_seed(1)
inputs = torch.randn(args.records, 20, generator=source)
labels = torch.randint(0, 5, (args.records,), generator=source)
model = torch.nn.Sequential(
    torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 5)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.9)


calls: list[int] = []  # only `--stick` reads it


class Data:
    def __len__(self) -> int:
        return int(args.records)

    def __getitem__(self, index: int) -> Any:
        if index == args.poison:
            raise ValueError(f"record {index} is spoilt")
        return inputs[index], labels[index]


def loss_of(batch: Any) -> torch.Tensor:
    calls.append(1)
    if args.stick and os.environ.get("TORCHYARD_ELASTIC_WORKER", "").endswith(args.stick) and len(calls) > 5:
        time.sleep(10_000)
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


steps = job.train(
    model,
    optimizer,
    loss=loss_of,
    data=Data(),
    batch=args.batch,
    micro_batches=args.micro_batches,
    epochs=args.epochs,
    mode=args.mode,
    clip_norm=1.0,
    scheduler=scheduler,
    snapshot_every=args.snapshot_every,
    unchecked=["calls", "len(calls)"],
    checkpoints=elastic.Checkpoints(args.checkpoints, every=20, keep=2) if args.checkpoints else None,
)
for step in steps:
    if args.hold and not Path(args.hold).exists():
        select.select([], [], [], args.hold_pause)  # libfaketime makes `time.sleep` fail after the clock was set
    if step.number % 10 == 0:
        print(f"step {step.number} of world {step.world}: loss {step.loss:.3f}", flush=True)
print(f"digest {job.digest} after {job.recomputed_steps} recomputed\n", end="", flush=True)
