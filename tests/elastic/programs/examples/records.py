"""What the examples share: small data instead of a download, and how a test controls their speed."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from torchyard.elastic.world.coordinator_client import WorkerStopped
from torchyard.elastic.world.runtime import WorkerRuntime

HOLD_AFTER = int(os.environ.get("EXAMPLE_HOLD_AFTER", "8"))


def image_records(count: int, seed: int) -> TensorDataset:
    source = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 1, 8, 8, generator=source), torch.randint(0, 4, (count,), generator=source))


def text_records(count: int, seed: int) -> TensorDataset:
    tokens = torch.randint(0, 16, (count, 9), generator=torch.Generator().manual_seed(seed))
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def runtime() -> WorkerRuntime | None:
    """The elastic runtime of this process; None with plain DDP."""
    return next((item for item in gc.get_objects() if type(item) is WorkerRuntime), None)


def log(line: str) -> None:
    """Print progress. With ZOO_HOLD, wait for that file after the first steps, but let the world change."""
    print(line, flush=True)
    path = os.environ.get("ZOO_HOLD")
    worker = runtime() if path else None
    while path and worker is not None and worker.step >= HOLD_AFTER and not Path(path).exists():
        try:
            if worker.rendezvous_pending():
                return
        except WorkerStopped:
            return
        time.sleep(0.005)


def finished(model: torch.nn.Module) -> None:
    """Print what a test compares, in one write: the workers of a test share the file."""
    worker = runtime()
    digest = worker.state.digest() if worker is not None else f"ddp{next(iter(model.parameters())).sum().item():.6f}"
    print(f"digest {digest}\n", end="", flush=True)
