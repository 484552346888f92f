"""What the body of a loop keeps from one step to the next must be part of the state, if it decides a model."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from torch import nn
from torch.utils.data import TensorDataset

from torchyard import elastic
from torchyard.elastic.errors import ElasticError

pytestmark = pytest.mark.train
INPUTS, LABELS = torch.randn(48, 6), torch.randint(0, 3, (48,))
DATA = TensorDataset(INPUTS, LABELS)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))


def steps(net: nn.Module, optimizer: Any = None, **changes: Any) -> Iterator[elastic.Step]:
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
    arguments: dict[str, Any] = {
        "loss": lambda batch: nn.functional.cross_entropy(net(batch[0]), batch[1]),
        "data": DATA,
        "batch": 8,
    }
    applied: Iterator[elastic.Step] = elastic.join(seed=1).train(net, optimizer, **(arguments | changes))
    return applied


def average_in_a_dict(net: nn.Module, **changes: Any) -> None:
    average = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for _ in steps(net, **changes):
        for name, parameter in net.named_parameters():
            average[name].lerp_(parameter.detach(), 0.1)


class Average:
    """A moving average as many programs have it; its state lacks the number of updates."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.updates = net, 0
        self.shadow = [parameter.detach().clone() for parameter in net.parameters()]

    def update(self) -> None:
        self.updates += 1
        decay = min(0.99, (1 + self.updates) / (10 + self.updates))
        self.shadow = [
            s * decay + p.detach() * (1 - decay) for s, p in zip(self.shadow, self.net.parameters(), strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.shadow = [tensor.clone() for tensor in state_dict["shadow"]]


def average_in_an_object(net: nn.Module, **changes: Any) -> None:
    average = Average(net)
    for _ in steps(net, **changes):
        average.update()


def average_without_its_counter(net: nn.Module, **changes: Any) -> None:
    average = Average(net)
    for _ in steps(net, also={"average": average}, **changes):
        average.update()


def best_model(net: nn.Module, **changes: Any) -> None:
    best, best_state = float("inf"), net.state_dict()
    for step in steps(net, **changes):
        if step.loss < best + 1:
            best, best_state = step.loss, copy.deepcopy(net.state_dict())
    net.load_state_dict(best_state)


class Warmup:
    """A schedule that is not torch's."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.calls = optimizer, 0

    def step(self) -> None:
        self.calls += 1
        self.optimizer.param_groups[0]["lr"] = 0.1 / self.calls


def schedule_of_its_own(net: nn.Module, **changes: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    warmup = Warmup(optimizer)
    for _ in steps(net, optimizer, **changes):
        warmup.step()


class CountingOptimizer(torch.optim.SGD):
    calls = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        super().step(closure)


def optimizer_that_counts(net: nn.Module, **changes: Any) -> None:
    for _ in steps(net, CountingOptimizer(net.parameters(), lr=0.1), **changes):
        pass


CASES: list[tuple[Callable[..., None], str, str]] = [
    (average_in_a_dict, r"average\['0\.weight'\], which has the shape of a parameter", "average"),
    (average_in_an_object, r"average\.updates, which belongs to an object that uses the model", "average"),
    (average_without_its_counter, r"average\.updates changes while training, but the state_dict", "average.updates"),
    (best_model, r"best_state\['0\.weight'\], which has the shape", "best_state"),
    (schedule_of_its_own, r"warmup\.calls, which belongs to an object that uses the model or its optimizer", "warmup"),
    (optimizer_that_counts, r"optimizer\.calls changes while training, but the state_dict", "optimizer.calls"),
]


@pytest.mark.parametrize(("program", "text", "name"), CASES)
def test_what_the_loop_keeps_for_a_model_is_refused_unless_it_is_unchecked(
    program: Callable[..., None], text: str, name: str
) -> None:
    with pytest.raises(ElasticError, match=text) as caught:
        program(network())
    assert caught.value.code == "StateOutside"
    assert "unchecked=[" in caught.value.hint
    program(network(), unchecked=[name])


class Meter:
    def __init__(self) -> None:
        self.total, self.values = 0.0, list[float]()

    def update(self, value: float) -> None:
        self.total += value
        self.values.append(value)


def test_logs_and_temporary_copies_of_the_model_are_allowed() -> None:
    net, meter, total, losses = network(), Meter(), 0.0, list[float]()
    for step in steps(net, epochs=2):
        meter.update(step.loss)
        total += step.loss
        losses.append(total)
        weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        norm = sum(float(tensor.norm()) for tensor in weights.values())
        difference = next(net.parameters()).detach() - torch.ones(8, 6)
        meter.update(norm + float(difference.sum()))
    assert len(losses) == 12


class Program:
    """A class with the loop: what it counts is its own affair."""

    def __init__(self) -> None:
        self.net, self.seen = network(), 0

    def train(self) -> None:
        for _ in steps(self.net):
            self.seen += 8


def test_the_object_that_has_the_loop_may_count() -> None:
    program = Program()
    program.train()
    assert program.seen == 48


def recurrent(batch: Any, net: Any, hidden: torch.Tensor) -> torch.Tensor:
    output, hidden = net["cell"](batch[0][:, None], hidden)
    torch.autograd.backward(nn.functional.cross_entropy(net["head"](output[:, 0]), batch[1]))
    return hidden.detach()


def recurrent_loop(**changes: Any) -> tuple[Any, Any, Iterator[Any]]:
    net = nn.ModuleDict({"cell": nn.GRU(6, 8, batch_first=True), "head": nn.Linear(8, 3)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return net, optimizer, elastic.join(seed=1).batches(net, optimizer, data=DATA, batch=8, **changes)


@pytest.mark.parametrize("unchecked", [[], ["hidden"]])
def test_a_hidden_state_that_a_loop_carries_from_batch_to_batch_is_refused(unchecked: list[str]) -> None:
    net, optimizer, batches = recurrent_loop(unchecked=unchecked)
    hidden = torch.zeros(1, 8, 8)

    def train() -> None:
        nonlocal hidden
        for batch in batches:
            hidden = recurrent(batch, net, hidden)
            optimizer.step()
            optimizer.zero_grad()

    if unchecked:
        train()
        return
    with pytest.raises(ElasticError, match="the loop carries hidden from one batch to the next"):
        train()


def test_a_hidden_state_that_begins_with_every_batch_is_allowed() -> None:
    net, optimizer, batches = recurrent_loop()
    hidden = None
    for batch in batches:
        hidden = torch.zeros(1, len(batch[0]), 8)
        hidden = recurrent(batch, net, hidden)
        optimizer.step()
        optimizer.zero_grad()
    assert hidden is not None


def test_the_best_model_after_an_epoch_of_an_own_loop_is_refused() -> None:
    net, best = network(), dict[str, torch.Tensor]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ElasticError, match=r"best\['0\.weight'\], which has the shape of a parameter"):
        for _, batches in elastic.join(seed=1).epochs(net, optimizer, data=DATA, batch=8, epochs=2):
            for inputs, labels in batches:
                torch.autograd.backward(nn.functional.cross_entropy(net(inputs), labels))
                optimizer.step()
                optimizer.zero_grad()
            best.update(copy.deepcopy(net.state_dict()))
