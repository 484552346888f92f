"""Programs that differ from the tutorial: the model is right, or the program is refused before its first step."""

from __future__ import annotations

import copy
import importlib.util
import random
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from tests.elastic.thread_group import ThreadWorld
from torch.utils.checkpoint import checkpoint

from torchyard import elastic
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.buffers import BufferWatch, mutable_buffers
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.gradient_buffer import RunningStatistics
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import split_micro_batches
from torchyard.elastic.worker.settings import TrainingSettings
from torchyard.elastic.world.comparison import copy_together, first_difference
from torchyard.elastic.world.process_group import ProcessGroup
from torchyard.elastic.world.state import TrainingState, raw_bytes

pytestmark = pytest.mark.train
torch.set_num_threads(1)
INPUTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.randint(0, 3, (48,), generator=torch.Generator().manual_seed(4))
DATA = torch.utils.data.TensorDataset(INPUTS, LABELS)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def parts(seed: int = 1) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return net, torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


def loss_with(net: Any) -> Any:
    return lambda batch: torch.nn.functional.cross_entropy(net(batch[0]), batch[1])


def train(net: Any, optimizer: Any, **changes: Any) -> elastic.Job:
    job = elastic.join(seed=1)
    arguments = {"loss": loss_with(net), "data": DATA, "batch": 24, "micro_batches": 2} | changes
    for _ in job.train(net, optimizer, **arguments):
        pass
    return job


class _SharedLayer(torch.nn.Module):
    """Uses one layer several times, each time with reentrant activation checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.uses = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(self.uses):
            x = checkpoint(lambda value: self.shared(value).tanh(), x, use_reentrant=True)
        return x


def test_fast_mode_adds_all_gradients_of_a_layer_that_is_checkpointed_several_times() -> None:
    torch.manual_seed(0)
    nets = [_SharedLayer(), _SharedLayer()]
    nets[1].load_state_dict(nets[0].state_dict())
    uses = [3, 3, 5, 2, 3]  # more and fewer additions than in the steps before

    def rank_of(rank: int, group: Any) -> list[torch.Tensor]:
        net, results = nets[rank], []
        reducer = FastReducer(net, 2)
        reducer.enter_world(group, split_micro_batches(2, 2))
        for step, count in enumerate(uses):
            net.uses = count if rank == 0 else 3
            reducer.begin()
            reducer.before_last_backward()
            loss = net(INPUTS[rank * 4 + step : rank * 4 + step + 4]).pow(2).mean() / 2
            loss.backward()
            reducer.add(rank, loss.detach(), weight=0.5)
            reducer.finish(rendezvous=False)
            results.append(torch.cat([p.grad.flatten().clone() for p in net.parameters() if p.grad is not None]))
        return results

    both = ThreadWorld(2).run(rank_of)
    plain = _SharedLayer()
    plain.load_state_dict(nets[0].state_dict())
    for step, count in enumerate(uses):
        plain.zero_grad()
        for rank in (0, 1):
            plain.uses = count if rank == 0 else 3
            (plain(INPUTS[rank * 4 + step : rank * 4 + step + 4]).pow(2).mean() / 2).backward()
        expected = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None])
        for rank in (0, 1):
            torch.testing.assert_close(both[rank][step], expected)


class _Counting(torch.nn.Module):
    """Has buffers of its own that a forward pass changes: an average, a counter, and a cache that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.average: torch.Tensor
        self.calls: torch.Tensor
        self.cache: torch.Tensor
        self.register_buffer("average", torch.zeros(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(6), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.calls += 1
            self.average.lerp_(x.mean(0), 0.1)
            self.cache += x.sum(0)
        return x * (1 + self.calls / 100) + self.cache


def norm_model() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.BatchNorm1d(6, momentum=None),
        _Counting(),
        torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(6, 6)),
        torch.nn.Unflatten(1, (2, 3)),
        torch.nn.InstanceNorm1d(2, track_running_stats=True),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 1),
    )


@pytest.mark.parametrize("world", [1, 2, 4])
def test_buffers_that_a_forward_pass_changes_do_not_depend_on_the_number_of_workers(world: int) -> None:
    template = norm_model()

    def after(size: int) -> str:
        def rank_of(rank: int, group: Any) -> str:
            net = copy.deepcopy(template)
            watch = BufferWatch(net)
            net(INPUTS[:4]).sum()
            buffers = mutable_buffers(net, watch.changed())
            watch.restore()
            reducer = StrictReducer(net, 4, buffers)
            statistics = RunningStatistics(reducer.layout)
            blocks = split_micro_batches(4, size)
            reducer.enter_world(group, blocks)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(3):
                reducer.begin()
                statistics.begin()
                for micro in blocks[rank]:
                    statistics.rewind()
                    start = step * 16 + micro * 4
                    loss = net(INPUTS[start : start + 4]).pow(2).mean() / 4
                    loss.backward()
                    reducer.add(micro, loss.detach(), weight=0.25)
                total, _ = reducer.finish(rendezvous=False)
                statistics.apply_mean(total)
                optimizer.step()
            assert int(net.get_buffer("0.num_batches_tracked")) == 3
            assert int(net.get_buffer("1.calls")) == 3
            return TrainingState({"model": net}).digest()

        results = ThreadWorld(size).run(rank_of) if size > 1 else [rank_of(0, ProcessGroup(0, 1))]
        assert len(set(results)) == 1
        return str(results[0])

    assert after(world) == after(1)


def test_a_cumulative_average_is_that_of_a_plain_loop() -> None:
    net, plain = (torch.nn.Sequential(torch.nn.BatchNorm1d(6, momentum=None), torch.nn.Linear(6, 3)) for _ in range(2))
    plain.load_state_dict(net.state_dict())
    train(net, torch.optim.SGD(net.parameters(), lr=0.0), micro_batches=1, batch=8, shuffle=False)
    for start in range(0, 48, 8):
        plain(INPUTS[start : start + 8])
    torch.testing.assert_close(net.get_buffer("0.running_mean"), plain.get_buffer("0.running_mean"))
    torch.testing.assert_close(net.get_buffer("0.running_var"), plain.get_buffer("0.running_var"))


class _Augmented:
    """Records with noise from the three generators that programs use."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        import numpy

        noise = torch.rand(6) + random.random() + float(numpy.random.rand())
        return INPUTS[index] + noise, LABELS[index]


def test_augmentation_depends_on_the_records_alone_in_threads_and_processes() -> None:
    pytest.importorskip("numpy")

    def digest(**changes: Any) -> str:
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
        torch.manual_seed(1)
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        return str(train(net, optimizer, data=_Augmented(), epochs=3, **changes).digest)

    first = digest()
    assert digest() == first
    assert digest(prefetch=0) == first
    assert digest(loaders=2) == first
    assert digest(loaders=1, prefetch=4) == first


class _OwnGenerator(_Augmented):
    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index] + torch.rand(6, generator=self._generator), LABELS[index]


def loss_with_counter(net: Any) -> Any:
    calls: list[int] = []

    def loss_of(batch: Any) -> torch.Tensor:
        calls.append(1)
        loss: torch.Tensor = loss_with(net)(batch)
        return loss * (1 + len(calls) / 100)

    return loss_of


def test_a_dataset_with_a_generator_of_its_own_is_refused() -> None:
    with pytest.raises(ElasticError, match="the dataset gave two results") as caught:
        train(*parts(), data=_OwnGenerator())
    assert caught.value.code == "NotReproducible"


@pytest.mark.parametrize("mode", ["strict", "fast"])
def test_a_loss_function_that_counts_its_calls_is_refused(mode: str) -> None:
    net, optimizer = parts()
    with pytest.raises(ElasticError, match="the loss function gave two results") as caught:
        train(net, optimizer, loss=loss_with_counter(net), mode=mode)
    assert "buffer of the model" in caught.value.hint


def test_an_optimizer_of_parameters_outside_of_the_model_is_refused() -> None:
    net, _ = parts()
    head = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with pytest.raises(ElasticError, match="group 0 of the optimizer") as caught:
        train(net, optimizer)
    assert caught.value.code == "ForeignParameter"


def test_a_scheduler_that_is_not_part_of_the_state_is_refused() -> None:
    net, optimizer = parts()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    with pytest.raises(ElasticError, match="a StepLR changes the learning rate") as caught:
        train(net, optimizer)
    assert caught.value.code == "UnknownScheduler"
    train(net, optimizer, also={"schedule": schedule})


def test_schedulers_inside_of_a_scheduler_of_the_state_are_known() -> None:
    net, optimizer = parts()
    inner = [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
    train(net, optimizer, scheduler=torch.optim.lr_scheduler.SequentialLR(optimizer, inner, milestones=[1]))


def test_a_moving_average_outside_of_the_state_is_refused() -> None:
    net, optimizer = parts()
    ema = torch.optim.swa_utils.AveragedModel(net)
    job = elastic.join(seed=1)
    arguments: dict[str, Any] = {"loss": loss_with(net), "data": DATA, "batch": 8}
    with pytest.raises(ElasticError, match=r"a (Linear|AveragedModel) that is not part of the state") as caught:
        for _ in job.train(net, optimizer, **arguments):
            ema.update_parameters(net)
    assert "also=" in caught.value.hint
    for _ in job.train(net, optimizer, **arguments, also={"ema": ema}):
        ema.update_parameters(net)


def test_unfreezing_a_parameter_while_training_is_refused() -> None:
    net, optimizer = parts()
    net[0].weight.requires_grad_(False)
    with pytest.raises(ElasticError, match=r"requires_grad of 0\.weight changed"):
        for _ in elastic.join().train(net, optimizer, loss=loss_with(net), data=DATA, batch=8):
            net[0].weight.requires_grad_(True)


def test_adding_parameters_to_an_optimizer_while_training_is_refused() -> None:
    net, _ = parts()
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
    with pytest.raises(ElasticError, match="parameters were added to an optimizer"):
        for step in elastic.join().train(net, optimizer, loss=loss_with(net), data=DATA, batch=8):
            if step.number == 2:
                optimizer.add_param_group({"params": net[2].parameters()})


class _Initializing(torch.nn.Module):
    """Initializes a parameter from its first batch, as activation normalization does."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.shift.copy_(x.mean(0))
        return x - self.shift


def test_a_forward_pass_that_changes_a_parameter_is_refused() -> None:
    net = torch.nn.Sequential(_Initializing(), torch.nn.Linear(6, 3))
    with pytest.raises(ElasticError, match=r"the forward pass changes the parameter 0\.shift"):
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda net, optimizer: net[2].weight.data.add_(1e-3), "model.2.weight"),
        (lambda net, optimizer: optimizer.param_groups[0].update(lr=0.25), "the plain values of optimizer"),
        (lambda net, optimizer: net[0].weight.data[4, 3].add_(1.0), "model.0.weight"),
    ],
)
def test_a_comparison_names_the_first_tensor_and_the_worker_that_differ(change: Any, name: str) -> None:
    template, _ = parts()

    def rank_of(rank: int, group: Any) -> Any:
        net = copy.deepcopy(template)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        state = TrainingState({"model": net, "optimizer": optimizer})
        members = ("a", "b", "c")
        assert first_difference(group, state.capture(), members, window=0) is None
        if rank == 1:
            change(net, optimizer)
        return first_difference(group, state.capture(), members, window=1)

    assert set(map(str, ThreadWorld(3).run(rank_of))) == {str((name, ["b"]))}


def test_a_change_of_one_element_of_a_large_tensor_is_found_within_one_round() -> None:
    def rank_of(rank: int, group: Any) -> list[int]:
        tensor = torch.zeros(50_000)
        tensor[20_000] = rank
        state = TrainingState({"model": _Buffer(tensor)})
        differences = [first_difference(group, state.capture(), ("a", "b"), window=window) for window in range(13)]
        assert first_difference(group, state.capture(), ("a", "b"), window=None) is not None
        return [window for window, difference in enumerate(differences) if difference is not None]

    assert ThreadWorld(2).run(rank_of) == [[4], [4]]


def test_tensors_of_a_device_are_copied_together_byte_for_byte() -> None:
    tensors = [
        torch.randn(5, 3),
        torch.tensor(7),
        torch.randn(4, 4).t(),
        torch.empty(0),
        torch.tensor([True, False]),
        torch.randn(3, dtype=torch.bfloat16, requires_grad=True),
        torch.randn(2, dtype=torch.complex64),
    ]
    copies = copy_together(tensors)
    assert [bytes(raw_bytes(copy)) for copy in copies] == [bytes(raw_bytes(tensor)) for tensor in tensors]


class _Buffer(torch.nn.Module):
    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("tensor", tensor)


def test_the_loop_of_a_framework_refuses_buffers_that_it_cannot_average() -> None:
    net = torch.nn.Sequential(torch.nn.utils.spectral_norm(torch.nn.Linear(6, 3)))
    settings = TrainingSettings(data=DATA, batch=8)
    loop = elastic.join(seed=1).host(net, torch.optim.SGD(net.parameters(), lr=0.1), settings, facts={})
    loop.enter()

    def backward(batch: Any, weight: float) -> torch.Tensor:
        loss: torch.Tensor = net(batch[0]).pow(2).mean()
        torch.autograd.backward(loss)
        return loss

    with pytest.raises(ElasticError, match=r"changes the buffer 0\.weight_u"):
        loop.compute(backward)
    loop.close()


def test_the_loop_of_a_framework_computes_the_steps_that_a_newer_world_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    net = torch.nn.Linear(6, 3)
    settings = TrainingSettings(data=DATA, batch=8)
    loop = elastic.join(seed=1).host(net, torch.optim.SGD(net.parameters(), lr=0.1), settings, facts={})
    loop.enter()
    steps: list[int] = []

    def attempt(step: int, backward: Any) -> float | None:
        steps.append(step)
        loop.runtime.step = 0  # the world broke, and the next one begins here
        return None if len(steps) == 1 else 0.5

    loop.runtime.step = 2
    monkeypatch.setattr(loop, "_attempt", attempt)
    assert loop.compute(lambda batch: batch) == 0.5
    assert steps == [3, 1]
    loop.close()
