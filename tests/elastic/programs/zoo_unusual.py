"""Further training programs, less common than those of `zoo.py`: `python zoo_unusual.py NAME`."""

# mypy: disable-error-code="import-not-found,no-any-return,no-untyped-call"
from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import zoo
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler
from zoo import BATCH, DATA, EPOCHS, INPUTS, LABELS, RECORDS, SOURCE, Program, hold, job, loss_with, mlp, train

from torchyard import elastic

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@program
def adversarial_losses() -> None:
    """A generator and a discriminator: each gets the gradients of its own loss, and each has its optimizer."""
    model = nn.ModuleDict({"generator": nn.Linear(4, 8), "critic": nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))})
    optimizers = {
        "generator": torch.optim.Adam(model["generator"].parameters(), lr=1e-3, betas=(0.5, 0.9)),
        "critic": torch.optim.Adam(model["critic"].parameters(), lr=4e-3),
    }

    def loss_of(batch: Any) -> torch.Tensor:
        real = batch[0]
        fake = model["generator"](torch.randn(len(real), 4))
        critic_loss = (1 - model["critic"](real)).relu().mean() + (1 + model["critic"](fake.detach())).relu().mean()
        model["critic"].requires_grad_(False)
        generator_loss = -model["critic"](fake).mean()
        model["critic"].requires_grad_(True)
        return critic_loss + generator_loss

    train(model, optimizers, loss=loss_of)


@program
def gradient_penalty() -> None:
    model = mlp()

    def loss_of(batch: Any) -> torch.Tensor:
        inputs = batch[0].clone().requires_grad_(True)
        loss = nn.functional.cross_entropy(model(inputs), batch[1])
        (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
        return loss + 0.1 * gradient.pow(2).sum(1).mean()

    train(model, loss=loss_of)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mix, self.head = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 10, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.mix(self.tokens(tokens)).tanh())
        return logits


TEXT = torch.randint(0, 10, (RECORDS, 5), generator=SOURCE)


@program
def tied_weights() -> None:
    model = Tied()

    def loss_of(batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0][:, :-1]).flatten(0, 1), batch[0][:, 1:].flatten())

    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loss=loss_of, data=TensorDataset(TEXT))


@program
def dropout_in_a_checkpointed_block() -> None:
    block, model = mlp(nn.Dropout(0.4)), nn.ModuleDict()
    model["block"] = block

    def loss_of(batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(checkpoint(block, batch[0], use_reentrant=False), batch[1])

    train(model, loss=loss_of)


class Sentences:
    """Records of different lengths, as dicts."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = 1 + index % 5
        return {"tokens": TEXT[index, :length], "label": int(LABELS[index]), "name": f"record-{index}"}


def pad(records: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = nn.utils.rnn.pad_sequence([record["tokens"] for record in records], batch_first=True)
    return {"tokens": tokens, "labels": torch.tensor([record["label"] for record in records])}


@program
def records_of_different_lengths() -> None:
    model = nn.Sequential(nn.Embedding(10, 8, padding_idx=0), nn.Linear(8, 4))
    loader: Any = DataLoader(Sentences(), batch_size=BATCH, shuffle=True, collate_fn=pad)  # type: ignore[arg-type]

    def loss_of(batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["tokens"]).mean(1), batch["labels"])

    train(model, data=loader, batch=None, loss=loss_of)


@program
def batch_sampler_that_drops_the_rest() -> None:
    batches = BatchSampler(RandomSampler(range(RECORDS)), BATCH, drop_last=True)
    train(mlp(), data=DataLoader(DATA, batch_sampler=batches), batch=None)


@program
def weighted_sampler_with_a_generator() -> None:
    generator = torch.Generator().manual_seed(4)
    sampler = WeightedRandomSampler(list(range(1, RECORDS + 1)), RECORDS, generator=generator)
    train(mlp(), data=DataLoader(DATA, batch_size=BATCH, sampler=sampler), batch=None)


@program
def cyclic_schedule() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, scheduler=torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3))


@program
def stochastic_weight_averaging() -> None:
    model = mlp(nn.BatchNorm1d(16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average: Any = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    schedule: Any = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)

    def body(step: elastic.Step) -> None:
        if step.last_of_epoch:
            average.update_parameters(model)
            schedule.step()

    train(model, optimizer, body, also={"average": average, "schedule": schedule})
    torch.optim.swa_utils.update_bn(DataLoader(DATA, batch_size=BATCH), average)


@program
def parametrizations() -> None:
    model = mlp(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)))
    nn.utils.parametrizations.orthogonal(model[0])
    train(model, torch.optim.Adagrad(model.parameters(), lr=0.05))


class RandomDepth(nn.Module):
    """Skips layers at random: a parameter has a gradient in some micro-batches only, one has never."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.middle = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.middle:
            if torch.rand(()) < 0.3:
                x = x + layer(x).tanh()
        output: torch.Tensor = self.last(x)
        return output


@program
def layers_that_are_skipped_at_random() -> None:
    model = RandomDepth()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1))


class OnPolicy:
    """Records that the present model generates, as in reinforcement learning."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=self._model(INPUTS[index])).sample()
        return INPUTS[index], action, float(action == LABELS[index])


@program
def data_that_the_model_generates() -> None:
    model = mlp()

    def loss_of(batch: Any) -> torch.Tensor:
        chosen = torch.distributions.Categorical(logits=model(batch[0])).log_prob(batch[1])
        return -(chosen * batch[2]).mean()

    train(model, loss=loss_of, data=OnPolicy(model))


@program
def double_precision() -> None:
    model = mlp().double()
    train(model, loss=lambda batch: nn.functional.cross_entropy(model(batch[0].double()), batch[1]))


@program
def half_precision_parameters() -> None:
    model = mlp().bfloat16()
    train(model, loss=lambda batch: nn.functional.cross_entropy(model(batch[0].bfloat16()).float(), batch[1]))


@program
def complex_parameters() -> None:
    model = nn.Linear(8, 4, dtype=torch.complex64)
    train(model, loss=lambda batch: nn.functional.cross_entropy(model(batch[0] + 0j).abs(), batch[1]))


@program
def fewer_records_than_workers() -> None:
    train(mlp(), data=TensorDataset(INPUTS[:2], LABELS[:2]), epochs=18)


class NoisySgd(torch.optim.SGD):
    """Adds noise to the parameters, as Langevin dynamics does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(torch.randn_like(parameter), alpha=1e-3)


@program
def optimizer_with_noise() -> None:
    model = mlp()
    train(model, NoisySgd(model.parameters(), lr=0.1))


@program
def another_working_directory() -> None:
    os.chdir(tempfile.mkdtemp())
    train(mlp())
    torch.save({}, "model.pt")


class Decoded:
    """Decodes every record in a process of its own."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        decoded = subprocess.run(["/bin/echo", "1"], capture_output=True, text=True, check=True)
        return INPUTS[index] * int(decoded.stdout), LABELS[index]


@program
def records_decoded_in_processes() -> None:
    train(mlp(), data=Decoded())


@program
def teacher_and_student() -> None:
    """Distillation from a frozen model outside of the state, which the loss function uses."""
    teacher, model = mlp().eval(), mlp(nn.Dropout(0.1))

    def loss_of(batch: Any) -> torch.Tensor:
        with torch.no_grad():
            target = teacher(batch[0]).softmax(1)
        return nn.functional.cross_entropy(model(batch[0]), target)

    train(model, loss=loss_of)


@program
def evaluation_in_the_body() -> None:
    model = mlp(nn.BatchNorm1d(16), nn.Dropout(0.2))
    best = {"loss": float("inf")}

    def body(step: elastic.Step) -> None:
        model.eval()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(model(INPUTS), LABELS))
        best["loss"] = min(best["loss"], loss)
        copy.deepcopy(model)
        model.train()

    train(model, None, body)


@program
def gradient_hooks() -> None:
    model = mlp()
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    model[2].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    train(model, torch.optim.NAdam(model.parameters()))


@program
def own_loop_with_clipping() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _, batches in job.epochs(model, optimizer, data=DataLoader(DATA, BATCH), micro_batches=4, epochs=EPOCHS):
        for inputs, labels in batches:
            optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(loss_with(model)((inputs, labels)))
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            hold()


class Blocks(torch.utils.data.Sampler[int]):
    """Shuffles blocks of records, with set_epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[int]:
        for block in torch.randperm(9, generator=torch.Generator().manual_seed(self.epoch)).tolist():
            yield from range(10 * block, 10 * block + 10)


@program
def sampler_with_epochs() -> None:
    train(mlp(), data=DataLoader(DATA, BATCH, sampler=Blocks()), batch=None)


class Assigned(nn.Module):
    """Assigns a new tensor to its buffers in every forward pass, as many programs do."""

    average: torch.Tensor
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(16))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        self.calls = self.calls + 1
        return x - self.average / self.calls


@program
def buffers_that_are_assigned() -> None:
    train(mlp(Assigned()))


@program
def buffers_that_are_assigned_in_fast_mode() -> None:
    train(mlp(Assigned()), mode="fast")


@program
def log_in_the_loss() -> None:
    model, losses = mlp(), []

    def loss_of(batch: Any) -> torch.Tensor:
        loss = loss_with(model)(batch)
        losses.append(float(loss))
        return loss

    train(model, loss=loss_of, unchecked=["losses", "len(losses)"])


@program
def temporary_attributes() -> None:
    """A module keeps values of its last batch, which do not influence the next one."""
    remembering = Remembering()
    model = mlp(remembering)
    train(model, loss=lambda batch: loss_with(model)(batch) + 0.01 * remembering.penalty)


class Remembering(nn.Module):
    penalty: Any = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.penalty, self.records, self.masks = x.pow(2).mean(), len(x), {len(x): torch.ones(len(x))}
        return x


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
    zoo.print_digest()
