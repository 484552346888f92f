"""Programs that keep state where no other worker can get it are refused, each with the name of the variable."""

from __future__ import annotations

import collections
import contextvars
import functools
import importlib.util
import itertools
import multiprocessing
import os
import random
import threading
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
calls = 0
Body = Callable[[elastic.Step], object]


def loss_with(net: nn.Module) -> Callable[[Any], torch.Tensor]:
    return lambda batch: nn.functional.cross_entropy(net(batch[0]), batch[1])


def network(*extra: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *extra, nn.Linear(8, 3))


def train(net: nn.Module, body: Body | None = None, **changes: Any) -> str:
    arguments: dict[str, Any] = {"loss": loss_with(net), "data": DATA, "batch": 8, "micro_batches": 2}
    optimizer = changes.pop("optimizer", None) or torch.optim.SGD(net.parameters(), lr=0.1)
    job = elastic.join(seed=1)
    for step in job.train(net, optimizer, **(arguments | changes)):
        if body is not None:
            body(step)
    return str(job.digest)


def _closure() -> Any:
    net, count = network(), {"calls": 0}

    def loss_of(batch: Any) -> torch.Tensor:
        count["calls"] += 1
        return loss_with(net)(batch) * (2 if count["calls"] > 100 else 1)

    return net, {"loss": loss_of}


def _global() -> Any:
    net = network()

    def loss_of(batch: Any) -> torch.Tensor:
        global calls  # noqa: PLW0603  # the program under test
        calls += 1
        return loss_with(net)(batch) * (2 if calls > 10_000 else 1)

    return net, {"loss": loss_of}


class _Meter:
    def __init__(self) -> None:
        self.net, self.total = network(), 0.0

    def loss_of(self, scale: float, batch: Any) -> torch.Tensor:
        loss = loss_with(self.net)(batch) * scale
        self.total += loss.item()
        return loss


def _method() -> Any:
    meter = _Meter()
    return meter.net, {"loss": functools.partial(meter.loss_of, 1.0)}


def _bank() -> Any:
    net, bank = network(), list[torch.Tensor]()

    def loss_of(batch: Any) -> torch.Tensor:
        bank.append(batch[0].detach())
        loss = loss_with(net)(batch)
        return loss + net[0](torch.cat(bank[-8:])).mean() if len(bank) > 8 else loss

    return net, {"loss": loss_of}


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x if self.calls < 30 else 2 * x


class _CountingData:
    def __init__(self) -> None:
        self.loaded = 0

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        self.loaded += 1
        return INPUTS[index] * (2 if self.loaded > 1000 else 1), LABELS[index]


def _gradient_hook() -> Any:
    net, count = network(), [0]

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return gradient * 0.9 ** count[0]

    weight: Any = net[0].weight
    weight.register_hook(hook)
    return net, {}


def _forward_hook() -> Any:
    net, count = network(), {"calls": 0}

    def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        count["calls"] += 1
        return output if count["calls"] < 30 else 2 * output

    net[0].register_forward_hook(hook)
    return net, {}


class _Shrinking(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _Shrinking.calls += 1
        return gradient * 0.9**_Shrinking.calls


def _autograd_function() -> Any:
    net = network()

    def loss_of(batch: Any) -> torch.Tensor:
        output: torch.Tensor = _Shrinking.apply(net(batch[0]))  # type: ignore[no-untyped-call]
        return nn.functional.cross_entropy(output, batch[1])

    return net, {"loss": loss_of}


class _RareNoise:
    """Draws from a generator of its own, which changes a record so rarely that the check does not see a difference."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index] * (2 if self.generator.random() < 1e-9 else 1), LABELS[index]


def _numpy_generator() -> Any:
    numpy = pytest.importorskip("numpy")
    return network(), {"data": _RareNoise(numpy.random.default_rng(0))}


def _counts_in_an_array() -> Any:
    numpy = pytest.importorskip("numpy")
    net, counts = network(), numpy.zeros(3)

    def loss_of(batch: Any) -> torch.Tensor:
        counts[int(batch[1][0])] += 1
        return loss_with(net)(batch)

    return net, {"loss": loss_of}


class _Slots:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


def _slots() -> Any:
    net, counter = network(), _Slots()

    def loss_of(batch: Any) -> torch.Tensor:
        counter.calls += 1
        return loss_with(net)(batch)

    return net, {"loss": loss_of}


def _collating() -> Any:
    counter = itertools.count()

    def collate(records: list[Any]) -> Any:
        next(counter)
        return torch.utils.data.default_collate(records)

    return network(), {"collate": collate}


def _counting_with(count: Callable[[], float]) -> Any:
    """A loss that changes after many calls, so that the first results do not show it."""
    net = network()
    return net, {"loss": lambda batch: loss_with(net)(batch) * (2 if count() > 10_000 else 1)}


def _default_argument() -> Any:
    net = network()

    def loss_of(batch: Any, seen: list[int] = []) -> torch.Tensor:  # noqa: B006  # the mistake under test
        seen.append(1)
        return loss_with(net)(batch)

    return net, {"loss": loss_of}


def _environment() -> Any:
    def count() -> float:
        os.environ["TRAIN_CALLS"] = str(int(os.environ.get("TRAIN_CALLS", "0")) + 1)
        return float(os.environ["TRAIN_CALLS"])

    return _counting_with(count)


def _context_variable() -> Any:
    number = contextvars.ContextVar("number", default=0)

    def count() -> float:
        number.set(number.get() + 1)
        return number.get()

    return _counting_with(count)


def _thread_local() -> Any:
    local = threading.local()
    local.calls = 0

    def count() -> float:
        local.calls += 1
        return float(local.calls)

    return _counting_with(count)


def _shared_value() -> Any:
    stage = multiprocessing.Value("i", 0)

    def count() -> float:
        stage.value += 1
        return float(stage.value)

    return _counting_with(count)


def _generator_function() -> Any:
    def numbers() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    return _counting_with(numbers().__next__)


def _range_of_numbers() -> Any:
    return _counting_with(iter(range(100_000)).__next__)


def _bytes() -> Any:
    counts = bytearray(1)

    def count() -> float:
        counts[0] += 1
        return counts[0]

    return _counting_with(count)


def _user_dict() -> Any:
    counts = collections.UserDict[str, int](calls=0)

    def count() -> float:
        counts["calls"] += 1
        return counts["calls"]

    return _counting_with(count)


@pytest.mark.parametrize(
    ("create", "name"),
    [
        (_default_argument, r"len\(loss_of.seen\)"),
        (_environment, r"os\.environ\['TRAIN_CALLS'\]"),
        (_context_variable, r"number\.get\(\)"),
        (_thread_local, "local.calls"),
        (_shared_value, "stage.value"),
        (_generator_function, r"count\.gi_frame\["),
        (_range_of_numbers, r"len\(count\)"),
        (_bytes, r"crc32\(counts\)"),
        (_user_dict, r"counts\.data\['calls'\]"),
        (_gradient_hook, r"count\[0\]"),
        (_forward_hook, r"count\['calls'\]"),
        (_autograd_function, "_Shrinking.calls"),
        (lambda: (network(), {"data": _RareNoise(random.Random(0))}), r"dataset.generator.getstate\(\)"),
        (_numpy_generator, "dataset.generator.bit_generator.state"),
        (_counts_in_an_array, "counts"),
        (_slots, "counter.calls"),
        (_collating, "counter.__repr__"),
        (_closure, r"count\['calls'\]"),
        (_global, "calls"),
        (_method, "self.total"),
        (_bank, r"len\(bank\)"),
        (lambda: (network(_Counting()), {}), "calls"),
        (lambda: (network(), {"data": _CountingData()}), "dataset.loaded"),
    ],
)
def test_a_variable_that_every_computation_changes_is_refused(create: Any, name: str) -> None:
    net, changes = create()
    with pytest.raises(ElasticError, match=f"again changes .*{name}.*, which is not part of the state") as caught:
        train(net, **changes)
    assert caught.value.code == "StateOutside"
    assert "unchecked=" in caught.value.hint


def test_noise_in_a_cache_is_refused() -> None:
    net = network()

    @functools.cache
    def noise(size: int) -> torch.Tensor:
        return torch.rand(size)

    def loss_of(batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(net(batch[0] + noise(len(batch[0]))[:, None]), batch[1])

    with pytest.raises(ElasticError, match="the loss function drew other random numbers when it computed the same"):
        train(net, loss=loss_of)


def test_an_unchecked_variable_may_change() -> None:
    net, changes = _closure()
    plain = network()
    assert train(net, **changes, unchecked=["count"]) == train(plain)


def _weight_of_the_loss() -> Any:
    net, alpha = network(), 1.0

    def loss_of(batch: Any) -> torch.Tensor:
        return loss_with(net)(batch) * alpha

    def body(step: elastic.Step) -> None:
        nonlocal alpha
        alpha = 0.9**step.number

    return net, body, {"loss": loss_of}


def _forgotten_evaluation() -> Any:
    net = network(nn.Dropout(0.5))
    return net, lambda step: net.eval(), {}


def _scheduled_dropout() -> Any:
    dropout = nn.Dropout(0.5)
    return network(dropout), lambda step: setattr(dropout, "p", 0.5 / (1 + step.number)), {}


class _Scaled:
    scale = 1.0

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index] * self.scale, LABELS[index]


def _curriculum() -> Any:
    data = _Scaled()
    return network(), lambda step: setattr(data, "scale", 1 + step.number), {"data": data}


def _average_in_a_list() -> Any:
    net = network()
    average = [parameter.detach().clone() for parameter in net.parameters()]

    def body(step: elastic.Step) -> None:
        for mean, parameter in zip(average, net.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 0.1)

    def loss_of(batch: Any) -> torch.Tensor:
        distances = [(mean - p).pow(2).sum() for mean, p in zip(average, net.parameters(), strict=True)]
        return loss_with(net)(batch) + torch.stack(distances).sum()

    return net, body, {"loss": loss_of}


def _labels_of_the_model() -> Any:
    """The body changes the labels at the end of an epoch only."""
    net, labels = network(), LABELS.clone()

    def body(step: elastic.Step) -> None:
        if step.last_of_epoch:
            labels.copy_(net(INPUTS).argmax(1))

    return net, body, {"data": TensorDataset(INPUTS, labels), "epochs": 2}


@pytest.mark.parametrize(
    ("create", "name"),
    [
        (_weight_of_the_loss, "alpha"),
        (_forgotten_evaluation, "net.*training"),
        (_scheduled_dropout, r"net\.1\.p"),
        (_curriculum, "dataset.scale"),
        (_average_in_a_list, r"average\[0\]"),
        (_labels_of_the_model, r"dataset.tensors\[1\]"),
    ],
)
def test_what_the_body_changes_and_the_loss_uses_is_refused(create: Any, name: str) -> None:
    net, body, changes = create()
    with pytest.raises(ElasticError, match=f"the body of the loop changed {name}") as caught:
        train(net, body, **changes)
    assert caught.value.code == "StateOutside"


def test_a_layer_that_the_body_replaces_is_refused() -> None:
    net = network()
    with pytest.raises(ElasticError, match=r"the parameter 1\.weight was replaced"):
        train(net, lambda step: net.__setitem__(1, nn.Linear(8, 3)))


class _Alpha:
    """The same weight, as a part of the state."""

    value = 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def test_an_object_of_the_state_may_change_in_the_body() -> None:
    net, alpha = network(), _Alpha()
    train(
        net,
        lambda step: setattr(alpha, "value", 0.9**step.number),
        loss=lambda batch: loss_with(net)(batch) * alpha.value,
        also={"alpha": alpha},
    )
    assert alpha.value == pytest.approx(0.9**6)


def test_an_evaluation_in_the_body_is_no_change() -> None:
    net, history = network(nn.BatchNorm1d(8), nn.Dropout(0.1)), list[float]()

    def body(step: elastic.Step) -> None:
        net.eval()
        history.append(loss_with(net)((INPUTS, LABELS)).item() + random.random())
        net.train()

    train(net, body)


class _Growing(nn.Module):
    memory: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(0, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.memory = torch.cat([self.memory, x.detach()])
        return x + self.memory.mean(0)


class _Policy:
    def __init__(self, net: nn.Module) -> None:
        self._net = net

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index], self._net(INPUTS[index]).argmax()


def _sparse() -> Any:
    net = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Flatten())
    return net, {"data": TensorDataset(torch.randint(0, 10, (48, 1)), LABELS)}


def _with_loss(change: Callable[[torch.Tensor], Any]) -> Any:
    net = network()
    return net, {"loss": lambda batch: change(loss_with(net)(batch))}


def _policy_in_processes() -> Any:
    net = network()
    return net, {"data": _Policy(net), "loaders": 1}


def _lbfgs() -> Any:
    net = network()
    return net, {"optimizer": torch.optim.LBFGS(net.parameters())}


@pytest.mark.parametrize(
    ("create", "code", "text"),
    [
        (lambda: (network(_Growing()), {}), "BufferResized", r"the buffer 1\.memory from .*\(0, 8\) to .*\(4, 8\)"),
        (_sparse, "SparseGradient", r"the gradient of 0\.weight is sparse"),
        (_policy_in_processes, "ModelInLoaders", "the dataset _Policy uses the model"),
        (_lbfgs, "NeedsClosure", "LBFGS"),
        (lambda: _with_loss(float), "NotAScalar", "a float, not a tensor"),
        (lambda: _with_loss(lambda loss: None), "NotAScalar", "a NoneType, not a tensor"),
        (lambda: _with_loss(lambda loss: loss.detach()), "NotAScalar", "a tensor without a gradient"),
        (lambda: _with_loss(lambda loss: loss + 0j), "NotAScalar", "a complex number"),
    ],
)
def test_what_cannot_be_averaged_is_refused_by_name(create: Any, code: str, text: str) -> None:
    net, changes = create()
    with pytest.raises(ElasticError, match=text) as caught:
        train(net, **changes)
    assert caught.value.code == code


def own_loop(optimizer: Any, net: nn.Module, body: Callable[[Any], None]) -> None:
    for batch in elastic.join(seed=1).batches(net, optimizer, data=DATA, batch=8, micro_batches=2):
        body(batch)


def test_a_loop_of_its_own_with_a_second_optimizer_is_refused() -> None:
    net = network()
    first, second = torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.SGD(net[1].parameters(), lr=0.1)

    def body(batch: Any) -> None:
        loss_with(net)(batch).backward()  # type: ignore[no-untyped-call]
        second.step()
        first.step()

    with pytest.raises(ElasticError, match=r"the parameters were changed before optimizer.step\(\)"):
        own_loop(first, net, body)
    with pytest.raises(ElasticError, match="can have one optimizer only"):
        own_loop([first, second], net, body)


def test_a_closure_in_a_loop_of_its_own_is_refused() -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ElasticError, match="got a closure"):
        own_loop(optimizer, net, lambda batch: optimizer.step(lambda: loss_with(net)(batch)))
