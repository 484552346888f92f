"""The order of a program's sampler: a function of seed and epoch, whatever the training thread draws meanwhile."""

from __future__ import annotations

import importlib.util
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from torch.utils.data import Sampler, TensorDataset

from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.data_source import DataSource, read_data
from torchyard.elastic.worker.loader import MicroBatchLoader
from torchyard.elastic.worker.seeding import generators_digest

pytestmark = pytest.mark.train
RECORDS = 24
DATA = TensorDataset(torch.arange(RECORDS))


class Drawing(Sampler[int]):
    """Draws from the global generators, as torch's own samplers do, and notes in which thread."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[int]:
        self.threads.add(threading.get_ident())
        yield from sorted(torch.randperm(RECORDS).tolist(), key=lambda record: (record % 2, random.random()))

    def __len__(self) -> int:
        return RECORDS


def source_of(sampler: Any) -> DataSource:
    return read_data(DATA, batch=8, shuffle=True, sampler=sampler, collate=None, loaders=None, seed=3)


def loader_of(source: DataSource) -> tuple[StepSampler, MicroBatchLoader]:
    steps = StepSampler(records=RECORDS, micro_size=4, micro_batches=2, epochs=4, seed=3, shuffle=False)
    return steps, MicroBatchLoader(steps, source, ahead=2)


def test_a_sampler_draws_in_the_training_thread_although_records_are_loaded_ahead_by_another() -> None:
    drawing = Drawing()
    steps, loader = loader_of(source_of(drawing))
    for step in range(1, steps.steps + 1):
        loader.prepare(step, range(2))
        for micro in range(2):
            assert len(loader.get(step, micro)[0]) == 4
        loader.look_ahead(step, range(2))
    loader.close()
    assert drawing.threads == {threading.get_ident()}


def test_an_order_leaves_the_generators_of_the_program_as_they_are() -> None:
    source = source_of(Drawing())
    assert source.order is not None
    random.seed(1)
    before = generators_digest()
    first = source.order(2)
    assert generators_digest() == before
    torch.rand(5)
    random.random()
    assert torch.equal(source.order(2), first)
    assert not torch.equal(source.order(1), first)


def test_an_error_of_a_sampler_belongs_to_the_micro_batch_that_needs_it() -> None:
    class Failing(Drawing):
        fails = False

        def __iter__(self) -> Iterator[int]:
            if self.fails:
                raise ZeroDivisionError
            return super().__iter__()

    failing = Failing()
    steps, loader = loader_of(source_of(failing))
    loader.prepare(1, range(2))
    loader.get(1, 0)
    failing.fails = True
    loader.look_ahead(steps.steps // 4, range(2))  # the next step begins another epoch
    with pytest.raises(ZeroDivisionError):
        loader.get(steps.steps // 4 + 1, 0)
    loader.close()
