"""Small training programs of the kinds that people write, by name: `python zoo.py NAME`.

Each trains 18 steps of 16 records. With ZOO_HOLD, a step waits until that file is there or the world must change. With
ZOO_CHECKPOINTS, the programs that use `train` save checkpoints in that directory.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from torchyard import elastic
from torchyard.elastic.world.coordinator_client import WorkerStopped

BATCH, RECORDS, EPOCHS = 16, 90, 3
SOURCE = torch.Generator().manual_seed(1)
INPUTS = torch.randn(RECORDS, 8, generator=SOURCE)
LABELS = torch.randint(0, 4, (RECORDS,), generator=SOURCE)
DATA = TensorDataset(INPUTS, LABELS)
job = elastic.join(seed=11)
Program = Callable[[], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def hold() -> None:
    """Wait for the file ZOO_HOLD after the first steps, but let the world change at every step."""
    path, runtime = os.environ.get("ZOO_HOLD"), job._started()
    while path and not Path(path).exists() and runtime.step >= 3:
        try:
            if runtime.rendezvous_pending():
                return
        except WorkerStopped:
            return
        time.sleep(0.005)


def loss_with(model: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(
    model: nn.Module, optimizer: Any = None, body: Callable[[elastic.Step], bool | None] | None = None, **changes: Any
) -> None:
    """Train with the usual settings; a body that returns True leaves the loop."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    arguments: dict[str, Any] = {"loss": loss_with(model), "data": DATA, "batch": BATCH, "micro_batches": 4}
    arguments |= {"epochs": EPOCHS, "digest_every": 5}
    if directory := os.environ.get("ZOO_CHECKPOINTS"):
        arguments["checkpoints"] = elastic.Checkpoints(directory, every=4)
    for step in job.train(model, optimizer, **(arguments | changes)):
        hold()
        if body is not None and body(step):
            break


def mlp(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), *extra, nn.ReLU(), nn.Linear(16, 4))


@program
def sgd() -> None:
    train(mlp())


@program
def adamw_with_schedule_and_clipping() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=18)
    train(model, optimizer, scheduler=scheduler, clip_norm=0.5)


@program
def sequential_schedule() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedules: list[Any] = [torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)]
    schedules.append(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=14))
    train(model, optimizer, scheduler=torch.optim.lr_scheduler.SequentialLR(optimizer, schedules, milestones=[4]))


@program
def plateau_schedule() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1))


@program
def schedule_in_the_body() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    train(model, optimizer, lambda step: schedule.step() if step.last_of_epoch else None, also={"schedule": schedule})


@program
def dropout() -> None:
    train(mlp(nn.Dropout(0.3)))


@program
def batch_norm() -> None:
    train(mlp(nn.BatchNorm1d(16)))


@program
def batch_norm_cumulative() -> None:
    train(mlp(nn.BatchNorm1d(16, momentum=None)))


@program
def batch_norm_used_twice() -> None:
    norm = nn.BatchNorm1d(16)
    train(mlp(norm, nn.Linear(16, 16), norm))


@program
def instance_norm() -> None:
    train(mlp(nn.Unflatten(1, (4, 4)), nn.InstanceNorm1d(4, track_running_stats=True), nn.Flatten()))


@program
def spectral_norm() -> None:
    train(mlp(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))))


class Codebook(nn.Module):
    """Has a moving average, a counter and a cache of its own."""

    average: torch.Tensor
    calls: torch.Tensor
    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(16))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(16), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.calls += 1
            self.average.lerp_(x.mean(0), 0.1)
            self.cache += x.mean(0)
        return x + self.average / self.calls + 0.01 * self.cache


@program
def own_buffers() -> None:
    train(mlp(Codebook()))


class Augmented:
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(8) + random.random() + float(numpy.random.rand())
        return INPUTS[index] + 0.1 * noise, LABELS[index]


@program
def augmentation() -> None:
    train(mlp(), data=Augmented())


@program
def augmentation_in_processes() -> None:
    train(mlp(nn.Dropout(0.1)), data=Augmented(), loaders=2)


@program
def data_loader() -> None:
    train(mlp(), data=DataLoader(DATA, batch_size=BATCH, shuffle=True), batch=None)


def collate(records: list[Any]) -> Any:
    return torch.stack([record[0] for record in records]) * 2, torch.stack([record[1] for record in records])


@program
def data_loader_with_workers_and_collate() -> None:
    loader: DataLoader[Any] = DataLoader(
        Augmented(),  # type: ignore[arg-type]  # a map-style dataset without the base class
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=1,
    )
    train(mlp(), data=loader, batch=None)


@program
def weighted_sampler() -> None:
    weights = [1.0 + index % 5 for index in range(RECORDS)]
    train(mlp(), sampler=WeightedRandomSampler(weights, num_samples=80))


class EvenFirst(torch.utils.data.Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from sorted(range(RECORDS), key=lambda record: (record % 2, random.random()))

    def __len__(self) -> int:
        return RECORDS


@program
def own_sampler() -> None:
    train(mlp(), sampler=EvenFirst())


@program
def streams() -> None:
    rows = list(zip(INPUTS, LABELS, strict=True))
    parts = [rows[:40], rows[40:45], rows[45:]]
    train(mlp(), data=elastic.Streams(range(3), lambda part, offset: iter(parts[part][offset:])))


@program
def several_optimizers() -> None:
    model = mlp()
    optimizers = {
        "first": torch.optim.SGD(model[0].parameters(), lr=0.1),
        "last": torch.optim.AdamW(model[2].parameters(), lr=0.01),
    }
    schedulers = {name: torch.optim.lr_scheduler.StepLR(optimizers[name], 5) for name in optimizers}
    train(model, optimizers, scheduler=schedulers)


@program
def moving_average() -> None:
    model = mlp()
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)  # type: ignore[no-untyped-call]
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average)
    train(model, None, lambda step: ema.update_parameters(model), also={"ema": ema})


@program
def lazy_modules() -> None:
    model = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(4))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


@program
def mixed_precision_with_scaler() -> None:
    model = mlp()

    def loss_of(batch: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

    train(model, loss=loss_of, scaler=torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3))


class Repeated(nn.Module):
    """Uses one layer three times, with reentrant activation checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(3):
            x = checkpoint(lambda value: self.shared(value).tanh(), x, use_reentrant=True)
        output: torch.Tensor = self.last(x)
        return output


@program
def checkpointed_layer() -> None:
    train(Repeated())


@program
def fast_mode() -> None:
    train(mlp(nn.BatchNorm1d(16)), mode="fast")


@program
def fast_mode_checkpointed_layer() -> None:
    train(Repeated(), mode="fast")


@program
def patience_in_the_state() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = elastic.Values(best=float("inf"), bad=0)

    def halve_after_two_bad_steps(step: elastic.Step) -> None:
        kept.bad = 0 if step.loss < kept.best else kept.bad + 1
        kept.best = min(kept.best, step.loss)
        if kept.bad == 2:
            optimizer.param_groups[0]["lr"] *= 0.5
            kept.bad = 0

    train(model, optimizer, halve_after_two_bad_steps, also={"kept": kept})


@program
def early_stop() -> None:
    train(mlp(), None, lambda step: step.number == 13)


class Histogram:
    """State in a NumPy array, changed by the body of the loop."""

    def __init__(self) -> None:
        self.counts = numpy.zeros(8)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.counts = state_dict["counts"].copy()


@program
def numpy_state() -> None:
    histogram = Histogram()

    def body(step: elastic.Step) -> None:
        histogram.counts[step.number % 8] += step.loss

    train(mlp(), None, body, also={"histogram": histogram})
    assert isinstance(histogram.counts, numpy.ndarray)


@program
def frozen_parameters() -> None:
    model = mlp()
    model[0].weight.requires_grad_(False)
    train(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))


@program
def convolution() -> None:
    train(nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.lstm(x.view(-1, 4, 2))[0][:, -1])
        return output


@program
def recurrent() -> None:
    train(Recurrent())


class Transformer(nn.Module):
    """A tiny GPT: embeddings, causal attention, dropout, tied output."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(10, 8), nn.Embedding(8, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(8), persistent=False)
        self.mask: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.block(self.tokens(x) + self.places(torch.arange(8)), src_mask=self.mask)
        logits: torch.Tensor = hidden @ self.tokens.weight.T
        return logits


@program
def transformer() -> None:
    model = Transformer()
    text = torch.randint(0, 10, (RECORDS, 9), generator=torch.Generator().manual_seed(5))

    def loss_of(batch: Any) -> torch.Tensor:
        logits = model(batch[0][:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[0][:, 1:].flatten())

    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loss=loss_of, data=TensorDataset(text))


@program
def compiled() -> None:
    model = mlp()
    fast = torch.compile(model, backend="eager")
    train(model, loss=lambda batch: nn.functional.cross_entropy(fast(batch[0]), batch[1]))


@program
def own_loop() -> None:
    model = mlp(nn.BatchNorm1d(16), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    ema = torch.optim.swa_utils.AveragedModel(model)
    loader = DataLoader(DATA, batch_size=BATCH, shuffle=True)
    batches = job.batches(
        model, optimizer, data=loader, micro_batches=4, epochs=EPOCHS, also={"schedule": schedule, "ema": ema}
    )
    for inputs, labels in batches:
        with job.step():
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
            schedule.step()
            ema.update_parameters(model)
            hold()


@program
def own_epochs() -> None:
    model = mlp(nn.BatchNorm1d(16), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    ema = torch.optim.swa_utils.AveragedModel(model)
    loader = DataLoader(DATA, batch_size=BATCH, shuffle=True)
    parts = {"schedule": schedule, "ema": ema}
    for _, batches in job.epochs(model, optimizer, data=loader, micro_batches=4, epochs=EPOCHS, also=parts):
        for inputs, labels in batches:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
            hold()
        schedule.step()
        ema.update_parameters(model)
        hold()


@program
def own_loop_in_fast_mode() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(DATA, batch_size=BATCH)
    for _, batches in job.epochs(model, optimizer, data=loader, micro_batches=4, epochs=EPOCHS, mode="fast"):
        for inputs, labels in batches:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
            hold()


def print_digest() -> None:
    weights = job._started().state.capture().tensors[:2]
    # In one write: the workers of a test share the file.
    print(
        f"digest {job.digest} sum {sum(float(weight.abs().double().sum()) for weight in weights):.6f}\n",
        end="",
        flush=True,
    )


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
    print_digest()
