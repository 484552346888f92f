"""The records of the first micro-batch: the same whenever and wherever they are loaded, also in loops of a program."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from torch import nn
from torch.utils.data import Sampler, TensorDataset

from torchyard import elastic
from torchyard.elastic.coordinator.admission import compare_config
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.data_check import numbers_checksum

pytestmark = pytest.mark.train
INPUTS, LABELS = torch.randn(48, 6), torch.randint(0, 3, (48,))


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def own_loop(job: elastic.Job, net: nn.Module, optimizer: Any, data: Any) -> None:
    for inputs, labels in job.batches(net, optimizer, data=data, batch=8):
        torch.autograd.backward(nn.functional.cross_entropy(net(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()


def train(job: elastic.Job, net: nn.Module, optimizer: Any, data: Any) -> None:
    for _ in job.train(
        net,
        optimizer,
        loss=lambda batch: nn.functional.cross_entropy(net(batch[0]), batch[1]),
        data=data,
        batch=8,
    ):
        pass


class Records:
    """Records with noise.

    Args:
        noise: draws it.
        cached: whether a record is kept with its noise.
    """

    def __init__(self, noise: Callable[[], float], *, cached: bool = False) -> None:
        self._noise, self._cached, self._cache = noise, cached, dict[int, torch.Tensor]()

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        if index in self._cache:
            return self._cache[index], LABELS[index]
        record = INPUTS[index] + self._noise()
        if self._cached:
            self._cache[index] = record
        return record, LABELS[index]


@pytest.mark.parametrize("loop", [train, own_loop])
@pytest.mark.parametrize(
    ("create", "text"),
    [
        (lambda: Records(random.Random(3).random), "the dataset gave two results for the same records"),
        (lambda: Records(random.random, cached=True), "the dataset drew other random numbers when it loaded the same"),
    ],
)
def test_records_that_depend_on_earlier_loads_are_refused_in_every_loop(loop: Any, create: Any, text: str) -> None:
    net = nn.Linear(6, 3)
    with pytest.raises(ElasticError, match=text) as caught:
        loop(elastic.join(seed=1), net, torch.optim.SGD(net.parameters(), lr=0.1), create())
    assert caught.value.code == "NotReproducible"


def test_records_in_a_cache_before_their_noise_are_allowed() -> None:
    net = nn.Linear(6, 3)
    data = Records(lambda: 0.0, cached=True)
    train(elastic.join(seed=1), net, torch.optim.SGD(net.parameters(), lr=0.1), data)


def test_a_join_seeds_every_generator() -> None:
    numpy = pytest.importorskip("numpy")

    def drawn() -> tuple[float, float, float]:
        elastic.join(seed=5)
        return torch.rand(()).item(), random.random(), float(numpy.random.rand())

    assert drawn() == drawn()


def test_the_checksum_of_a_batch_reads_its_numbers_and_not_its_texts() -> None:
    batch = {"x": torch.arange(6.0), "y": [1, (2.5, "/here/1.png")]}
    elsewhere = {"x": torch.arange(6.0), "y": [1, (2.5, "/there/1.png")]}
    assert numbers_checksum(batch) == numbers_checksum(elsewhere)
    assert numbers_checksum(batch) != numbers_checksum(batch | {"x": torch.arange(6.0).flip(0)})
    assert numbers_checksum(batch) != numbers_checksum(batch | {"y": [1, (2.6, "/here/1.png")]})


def test_a_worker_with_other_records_is_refused_with_the_reason() -> None:
    with pytest.raises(ElasticError, match="first records is '1', the job has '2'") as caught:
        compare_config("worker-1", {"mode": "strict", "first records": "1"}, {"mode": "strict", "first records": "2"})
    assert "shuffle or split it after elastic.join" in caught.value.hint


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(48)


def test_a_sampler_without_an_end_is_refused() -> None:
    net = nn.Linear(6, 3)
    with pytest.raises(ElasticError, match="the sampler Endless gives more than 480 records in an epoch"):
        elastic.join().train(
            net,
            torch.optim.SGD(net.parameters(), lr=0.1),
            loss=lambda batch: net(batch[0]).sum(),
            data=TensorDataset(INPUTS, LABELS),
            batch=8,
            sampler=Endless(),
        )
