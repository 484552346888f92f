"""A tiny training program whose loop ends in unusual ways."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from torchyard import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batches", type=int, default=2)
parser.add_argument("--break-at", type=int, default=0)
parser.add_argument("--exit-at", type=int, default=0)
parser.add_argument("--only-rank", type=int, default=-1, help="only this rank leaves the loop")
parser.add_argument("--twice", action="store_true", help="train a second time")
parser.add_argument("--fail-after", action="store_true", help="raise after the training")
parser.add_argument("--wait-after", type=float, default=0.0, help="go on for seconds after the training")
parser.add_argument("--checkpoints", default="")
parser.add_argument("--every", type=int, default=4)
parser.add_argument("--diverge", type=int, default=0, help="one worker changes its model after this step")
parser.add_argument("--mode", default="strict")
parser.add_argument("--hold", default="", help="go slowly until this file is there")
args = parser.parse_args()

name = os.environ.get("TORCHYARD_ELASTIC_WORKER", "alone")
atexit.register(lambda: print(f"exit handler of {name}", flush=True))
job = elastic.join(seed=7)
source = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=source), torch.randn(64, 1, generator=source))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(batch: Any) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def train() -> None:
    for step in job.train(
        model,
        optimizer,
        loss=loss_of,
        data=data,
        batch=8,
        micro_batches=args.micro_batches,
        epochs=3,
        mode=args.mode,
        digest_every=5,
        checkpoints=elastic.Checkpoints(args.checkpoints, every=args.every) if args.checkpoints else None,
    ):
        if args.hold and not Path(args.hold).exists():
            time.sleep(0.1)
        if args.diverge == step.number and step.rank == 1:
            with torch.no_grad():
                model.weight.add_(0.001)
        if args.only_rank in (-1, step.rank):
            if step.number == args.exit_at:
                sys.exit(0)
            if step.number == args.break_at:
                break


train()
if args.twice:
    train()
if args.wait_after:
    time.sleep(args.wait_after)
if args.fail_after:
    raise ValueError("the evaluation failed")
print(f"digest {job.digest} of {name}\n", end="", flush=True)
