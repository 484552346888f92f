"""Programs with their own loops over batches or epochs: what is refused, and what a received step does to them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch

from torchyard import elastic
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.worker.epoch_loop import EpochLoop
from torchyard.elastic.world.state import TrainingState

pytestmark = pytest.mark.train
torch.set_num_threads(1)
INPUTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.randint(0, 3, (48,), generator=torch.Generator().manual_seed(4))
DATA = torch.utils.data.TensorDataset(INPUTS, LABELS)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def parts() -> tuple[Any, Any, Any]:
    torch.manual_seed(1)
    net = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    return net, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)


def backward(net: Any, batch: Any) -> None:
    net.zero_grad()
    torch.autograd.backward(torch.nn.functional.cross_entropy(net(batch[0]), batch[1]))


@pytest.mark.parametrize("mode", ["strict", "fast"])
def test_epochs_are_those_of_a_plain_loop_with_a_scheduler(mode: str) -> None:
    net, optimizer, schedule = parts()
    job = elastic.join(seed=1)
    seen: list[int] = []
    settings: dict[str, Any] = {
        "data": DATA,
        "batch": 16,
        "micro_batches": 2,
        "epochs": 3,
        "shuffle": False,
        "mode": mode,
    }
    for epoch, batches in job.epochs(net, optimizer, **settings, also={"schedule": schedule}):
        seen.append(epoch)
        assert (len(batches), len(batches.dataset)) == (6, 48)
        for batch in batches:
            backward(net, batch)
            optimizer.step()
        schedule.step()
    plain, descent, halving = parts()
    for _ in range(3):
        for start in range(0, 48, 16):
            backward(plain, (INPUTS[start : start + 16], LABELS[start : start + 16]))
            descent.step()
        halving.step()
    assert seen == [0, 1, 2]
    torch.testing.assert_close(net.weight, plain.weight)
    assert optimizer.param_groups[0]["lr"] == descent.param_groups[0]["lr"]


def test_gradient_accumulation_by_hand_is_refused_with_its_replacement() -> None:
    net, optimizer, schedule = parts()
    also = {"schedule": schedule}
    with pytest.raises(ElasticError, match=r"optimizer.step\(\) was not called for micro-batch 0 of step 1") as caught:
        for number, batch in enumerate(elastic.join().batches(net, optimizer, data=DATA, batch=8, also=also)):
            backward(net, batch)
            if number % 2:
                optimizer.step()
    assert "micro_batches is the gradient accumulation" in caught.value.hint


@pytest.mark.parametrize("kind", ["schedule", "average"])
def test_state_that_is_changed_for_every_batch_is_refused_outside_of_a_block(kind: str) -> None:
    net, optimizer, schedule = parts()
    average = torch.optim.swa_utils.AveragedModel(net)
    also: dict[str, Any] = {"schedule": schedule, "average": average}

    def change() -> None:
        schedule.step() if kind == "schedule" else average.update_parameters(net)

    settings: dict[str, Any] = {"data": DATA, "batch": 24, "micro_batches": 2, "also": also}
    with pytest.raises(ElasticError, match=f"{kind} was changed for micro-batch 0 of step 1") as caught:
        for batch in elastic.join().batches(net, optimizer, **settings):
            backward(net, batch)
            optimizer.step()
            change()
    assert "with job.step():" in caught.value.hint
    job = elastic.join()
    for batch in job.batches(net, optimizer, **settings):
        with job.step():
            backward(net, batch)
            optimizer.step()
            change()


def test_a_second_optimizer_step_for_a_batch_is_refused() -> None:
    net, optimizer, schedule = parts()
    with pytest.raises(ElasticError, match="called twice"):
        for batch in elastic.join().batches(net, optimizer, data=DATA, batch=8, also={"schedule": schedule}):
            backward(net, batch)
            optimizer.step()
            optimizer.step()


def test_an_epoch_that_is_left_early_is_refused_unless_the_training_is_left() -> None:
    net, optimizer, schedule = parts()
    settings: dict[str, Any] = {"data": DATA, "batch": 8, "epochs": 2, "also": {"schedule": schedule}}

    def train_first_batch(batches: Any) -> None:
        for batch in batches:
            backward(net, batch)
            optimizer.step()
            break

    with pytest.raises(ElasticError, match="ended at step 1, before the last batch"):
        for _, batches in elastic.join().epochs(net, optimizer, **settings):
            train_first_batch(batches)
    job = elastic.join()
    for _, batches in job.epochs(net, optimizer, **settings):
        train_first_batch(batches)
        break
    assert job._started().step == 1


class _Steps:
    """The steps of a worker that receives the last step of its epoch, or one of another epoch, from others."""

    def __init__(self, runtime: Any, received: int) -> None:
        self._runtime = runtime
        self._received = received
        self.applied: Any = None
        self.ends: list[int] = []

    def next_step(self) -> Iterator[int]:
        yield self._runtime.step + 1
        self.applied = None
        if self._runtime.step == 2 and self._received:
            self._runtime.step, self._received = self._received, 0
            self._runtime.state.parts["model"].weight.data.fill_(7.0)
        else:
            self._runtime.step += 1
            self.applied = True

    def after_step(self) -> None:
        self.ends.append(self._runtime.step)


@pytest.mark.parametrize(("received", "epochs", "seen"), [(0, [0, 1, 2], 3), (3, [0, 1, 2], 3), (7, [0, 2], 2)])
def test_what_follows_an_epoch_has_no_effect_on_a_received_state(received: int, epochs: list[int], seen: int) -> None:
    model = torch.nn.Linear(1, 1)
    state: Any = TrainingState({"model": model})
    state.parts = {"model": model}
    runtime = SimpleNamespace(step=0, state=state, block=range(1))
    sampler = SimpleNamespace(steps=9, steps_per_epoch=3)
    trainer: Any = SimpleNamespace(runtime=runtime, sampler=sampler, end=lambda: None, before_epoch=lambda: None)
    steps: Any = _Steps(runtime, received)
    bodies = 0
    numbers: list[int] = []
    for epoch, batches in EpochLoop(trainer, steps, DATA).epochs():
        if received and len(numbers) == 1:
            assert model.weight.item() == 7.0
        numbers.append(epoch)
        list(batches)
        bodies += 1
        with torch.no_grad():
            model.weight.fill_(bodies)
    assert numbers == epochs
    assert bodies == seen
    assert received not in steps.ends, "the world has just changed"
