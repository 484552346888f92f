"""A program with two trainings: `python trainings.py whole|early|undeclared|missing`. The second learns from the first.

With ZOO_HOLD, the first training waits at its third step for that file, the second for the file with `-2` at its end.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from torchyard import elastic
from torchyard.elastic.world.coordinator_client import WorkerStopped

KIND = sys.argv[1]
SOURCE = torch.Generator().manual_seed(1)
INPUTS = torch.randn(90, 8, generator=SOURCE)
LABELS = torch.randint(0, 4, (90,), generator=SOURCE)
CHECKPOINTS = os.environ.get("TRAININGS_CHECKPOINTS")
job = elastic.join(seed=11, trainings=1 if KIND == "undeclared" else 2)


def hold(end: str) -> None:
    path, runtime = os.environ.get("ZOO_HOLD"), job._started()
    while path and runtime.step >= 3 and not Path(path + end).exists():
        try:
            if runtime.rendezvous_pending():
                return
        except WorkerStopped:
            return
        time.sleep(0.005)


def settings(loss: Any, data: Any, epochs: int) -> dict[str, Any]:
    checkpoints = elastic.Checkpoints(CHECKPOINTS, every=4) if CHECKPOINTS else None
    common = {"batch": 16, "micro_batches": 4, "digest_every": 5, "checkpoints": checkpoints}
    return {"loss": loss, "data": data, "epochs": epochs, **common}


body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
model = nn.Sequential(body, nn.Linear(16, 4))


def first_loss(batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


for step in job.train(
    model, torch.optim.SGD(model.parameters(), lr=0.1), **settings(first_loss, TensorDataset(INPUTS, LABELS), 2)
):
    hold("")
    torch.rand(step.number)  # what follows the loop does not depend on it
    if KIND == "early" and step.number == 9:
        break
print(f"first {job.digest}", flush=True)
if KIND == "missing":
    sys.exit(0)

teacher = copy.deepcopy(model).eval()  # not part of any state
student = nn.Sequential(body, nn.Linear(16, 4))  # a new head, with random parameters
noise = torch.randn(50, 8)


def second_loss(batch: Any) -> torch.Tensor:
    with torch.no_grad():
        target = teacher(batch[0]).softmax(-1)
    return nn.functional.cross_entropy(student(batch[0]), target)


second = job.train(
    student, torch.optim.AdamW(student.parameters(), lr=0.01), **settings(second_loss, TensorDataset(noise), 4)
)
for _ in second:
    hold("-2")
print(f"digest {job.digest}\n", end="", flush=True)
