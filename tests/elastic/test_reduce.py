"""Reducers, layouts and states in one process: no sockets, tiny models."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.elastic.thread_group import ThreadWorld

from torchyard.elastic import api
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.reduce.fast import FastReducer
from torchyard.elastic.reduce.gradient_buffer import GradientLayout
from torchyard.elastic.reduce.strict import StrictReducer
from torchyard.elastic.sampler import Permutation, StepSampler, split_micro_batches
from torchyard.elastic.worker.data_source import DataSource
from torchyard.elastic.worker.loader import MicroBatchLoader, RecordIds
from torchyard.elastic.worker.training import JobContext
from torchyard.elastic.world.process_group import ProcessGroup
from torchyard.elastic.world.runtime import pack, unpack
from torchyard.elastic.world.state import Snapshot, TrainingState

pytestmark = pytest.mark.train
torch.set_num_threads(1)  # threads that wait for each other on a busy machine take minutes over nothing


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


@pytest.mark.parametrize("reducer", [StrictReducer, FastReducer])
def test_the_gradient_of_a_step_is_the_weighted_mean_of_its_micro_batches(reducer: Any) -> None:
    net = torch.nn.Linear(4, 2)
    inputs = torch.randn(12, 4)
    reducer_under_test = reducer(net, 3)
    reducer_under_test.enter_world(ProcessGroup(0, 1), split_micro_batches(3, 1))
    reducer_under_test.begin()
    for micro in range(3):
        loss = net(inputs[micro * 4 : micro * 4 + 4]).pow(2).mean() / 3
        loss.backward()
        reducer_under_test.add(micro, loss.detach(), weight=1 / 3)
    total, change = reducer_under_test.finish(rendezvous=True)
    reduced = [gradient(parameter).clone() for parameter in net.parameters()]
    net.zero_grad()
    net(inputs).pow(2).mean().backward()
    assert change
    for reduced_gradient, expected in zip(reduced, net.parameters(), strict=True):
        torch.testing.assert_close(reduced_gradient, expected.grad)
    torch.testing.assert_close(total.tail[1], net(inputs).pow(2).mean().detach())


@pytest.mark.parametrize("reducer", [StrictReducer, FastReducer])
def test_an_unused_parameter_has_a_zero_gradient(reducer: Any) -> None:
    used, unused = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    net = torch.nn.ModuleDict({"used": used, "unused": unused})
    reducer_under_test = reducer(net, 1)
    reducer_under_test.enter_world(ProcessGroup(0, 1), split_micro_batches(1, 1))
    for _ in range(2):
        reducer_under_test.begin()
        loss = used(torch.ones(1, 2)).sum()
        loss.backward()
        reducer_under_test.add(0, loss.detach(), weight=1.0)
        reducer_under_test.finish(rendezvous=False)
        assert not gradient(unused.weight).any()
        assert gradient(used.weight).any()


def expanded(net: Any) -> None:
    net[0].weight.grad = gradient(net[0].weight).sum().expand_as(net[0].weight)


def transposed(net: Any) -> None:
    net[0].weight.grad = gradient(net[0].weight).t().contiguous().t()


def shared(net: Any) -> None:
    net[1].weight.grad = net[1].bias.grad


def missing(net: Any) -> None:
    net[2].bias.grad = None


def in_several_parts(net: Any) -> None:
    net(torch.ones(3, 4)).sum().backward()


def differentiable(net: Any) -> None:
    for parameter in net.parameters():
        parameter.grad = None
    net(torch.ones(3, 4)).pow(2).sum().backward(create_graph=True)
    assert gradient(net[0].weight).requires_grad


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("change", [expanded, transposed, shared, missing, in_several_parts, differentiable])
def test_any_gradient_that_a_program_leaves_has_the_same_sum_in_every_world(change: Callable[[Any], None]) -> None:
    template, inputs = model(3), torch.randn(24, 4, generator=torch.Generator().manual_seed(2))

    def after(size: int) -> str:
        def rank_of(rank: int, group: Any) -> str:
            net = copy.deepcopy(template)
            reducer = StrictReducer(net, 7)
            blocks = split_micro_batches(7, size)
            reducer.enter_world(group, blocks)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                reducer.begin()
                for micro in blocks[rank]:
                    loss = net(inputs[micro * 3 : micro * 3 + 3]).pow(2).mean() / 7
                    loss.backward()
                    change(net)
                    reducer.add(micro, loss.detach(), weight=1 / 7)
                reducer.finish(rendezvous=False)
                optimizer.step()
            return TrainingState({"model": torch.nn.ParameterList(net.parameters())}).digest()

        results = ThreadWorld(size).run(rank_of) if size > 1 else [rank_of(0, ProcessGroup(0, 1))]
        assert len(set(results)) == 1
        return str(results[0])

    assert {after(size) for size in (2, 3, 5)} == {after(1)}


def test_a_gradient_is_added_where_backward_has_left_it() -> None:
    net = torch.nn.Linear(4, 2)
    reducer = StrictReducer(net, 2)
    reducer.enter_world(ProcessGroup(0, 1), split_micro_batches(2, 1))
    reducer.begin()
    places = []
    for micro in range(2):
        net(torch.ones(1, 4)).sum().backward()
        places.append(gradient(net.weight).data_ptr())
        reducer.add(micro, torch.zeros(()), weight=0.5)
    reducer.finish(rendezvous=False)
    assert gradient(net.weight).data_ptr() == places[0]
    assert torch.equal(gradient(net.weight), torch.full((2, 4), 2.0))


COUNT_FAULTS = """
import resource, sys
import torch
from torchyard.elastic.worker.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    before = faults()
    for _ in range(10):
        gradients = [torch.ones(1 << 20) for _ in range(10)]
        del gradients
    counted = faults() - before
print(counted)
"""


def test_the_memory_of_freed_gradients_is_not_taken_from_the_kernel_again() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", COUNT_FAULTS, how]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    pages = 10 * 10 * (4 << 20) // 65536  # of 64 KiB, the largest there are
    if faults("as usual") < pages:
        pytest.skip("this C library keeps freed memory by itself")
    assert faults("kept") < pages // 10


def test_a_model_of_mixed_types_is_refused_with_a_hint() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    with pytest.raises(ElasticError, match="several types or devices") as caught:
        GradientLayout(net, padding=0)
    assert "autocast" in caught.value.hint


def test_a_state_is_sent_as_header_and_bytes() -> None:
    net, other = model(1), model(2)
    optimizer, others = (torch.optim.AdamW(m.parameters()) for m in (net, other))
    net(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    sender, receiver = (
        TrainingState({"model": net, "optimizer": optimizer}),
        TrainingState({"model": other, "optimizer": others}),
    )
    assert sender.digest() != receiver.digest()
    sent = sender.capture()
    received = Snapshot.empty_like(sent.header())
    unpack(pack(sent), received)
    receiver.restore(received)
    assert sender.digest() == receiver.digest()


def test_a_state_of_another_program_is_refused() -> None:
    sent = TrainingState({"model": torch.nn.Linear(2, 2)}).capture()
    with pytest.raises(ElasticError, match="does not fit"):
        TrainingState({"model": torch.nn.Linear(3, 2)}).restore(sent)
    with pytest.raises(ElasticError, match="the state contains"):
        TrainingState({"net": torch.nn.Linear(2, 2)}).restore(sent)


@given(st.integers(1, 400), st.integers(0, 2**40))
@settings(max_examples=20)
def test_a_permutation_maps_tensors_like_integers(size: int, key: int) -> None:
    permute = Permutation.from_key(size, key)
    assert permute.map_tensor(torch.arange(size)).tolist() == [permute(position) for position in range(size)]


def test_the_loader_serves_any_order_of_requests_with_the_same_records() -> None:
    sampler = StepSampler(records=50, micro_size=3, micro_batches=4, epochs=2, seed=3)
    data = torch.utils.data.TensorDataset(torch.arange(50))
    loader = MicroBatchLoader(sampler, DataSource(data, 50, 12, shuffle=True), ahead=2)
    loader.prepare(1, range(0, 2))
    loader.prepare(2, range(2, 4))
    for step, micro in [(2, 3), (1, 0), (5, 3), (2, 2), (9, 1)]:
        assert loader.get(step, micro)[0].tolist() == sampler.record_ids(step, micro)
        assert RecordIds(sampler)(step, micro).tolist() == sampler.record_ids(step, micro)
    loader.close()


def train(**changes: Any) -> str:
    job = api.Job(JobContext(3))
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    arguments: dict[str, Any] = {"batch": 6, "micro_batches": 2, "epochs": 2, "prefetch": 0} | changes
    compiled = arguments.pop("wrap", lambda module: module)(net)
    data = torch.utils.data.TensorDataset(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    steps = list(job.train(net, optimizer, loss=lambda batch: compiled(batch[0]).pow(2).mean(), data=data, **arguments))
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    return job.digest


def test_training_alone_is_repeatable_and_prefetching_changes_nothing() -> None:
    assert train() == train(prefetch=3)


def test_accumulation_over_empty_micro_batches_at_the_end_of_an_epoch_works() -> None:
    train(batch=6, micro_batches=6)


def test_torch_compile_does_not_change_the_result() -> None:
    assert train(wrap=lambda net: torch.compile(net, backend="eager")) == train()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 7}, "does not divide into 2 micro-batches"),
        ({"mode": "quick"}, "mode is 'quick'"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_invalid_settings_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ElasticError, match=words):
        train(**changes)
