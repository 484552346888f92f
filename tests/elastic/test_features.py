"""What training programs bring along: clipping, accumulation, schedules, mixed precision, compilation, DDP's habits."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch

from torchyard import elastic
from torchyard.elastic.checkpoint.staged import newest_copy, read_copy
from torchyard.elastic.checkpoint.staging import Stager
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup, watch
from torchyard.elastic.world.state import TrainingState

pytestmark = pytest.mark.train
torch.set_num_threads(1)
INPUTS = torch.randn(96, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.randint(0, 3, (96,), generator=torch.Generator().manual_seed(4))
DATA = torch.utils.data.TensorDataset(INPUTS, LABELS)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    """Strict mode is for the process: the next test begins without it."""
    yield
    torch.use_deterministic_algorithms(False)


def parts(seed: int = 1) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return net, torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


def loss_with(net: Any) -> Any:
    return lambda batch: torch.nn.functional.cross_entropy(net(batch[0]), batch[1])


def weights(net: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize("mode", ["strict", "fast"])
def test_clipping_accumulation_and_a_schedule_are_those_of_a_plain_loop(mode: str) -> None:
    net, optimizer = parts()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for _ in elastic.join(seed=1).train(
        net, optimizer, loss=loss_with(net), data=DATA, batch=24, micro_batches=3, mode=mode, shuffle=False,
        clip_norm=0.1, scheduler=schedule, epochs=2,
    ):  # fmt: skip
        pass
    plain, descent = parts()
    halving = torch.optim.lr_scheduler.StepLR(descent, step_size=2, gamma=0.5)
    for start in [*range(0, 96, 24)] * 2:
        descent.zero_grad()
        for part in range(start, start + 24, 8):
            (loss_with(plain)((INPUTS[part : part + 8], LABELS[part : part + 8])) / 3).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        descent.step()
        halving.step()
    torch.testing.assert_close(weights(net), weights(plain))
    assert optimizer.param_groups[0]["lr"] == descent.param_groups[0]["lr"]


def test_mixed_precision_with_a_scaler_is_that_of_a_plain_loop_and_its_scale_is_part_of_the_state() -> None:
    def scaling(net: Any) -> tuple[Any, Any]:
        def loss_of(batch: Any) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return torch.nn.functional.cross_entropy(net(batch[0]), batch[1])

        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3), loss_of

    net, optimizer = parts()
    scaler, loss_of = scaling(net)
    job = elastic.join(seed=1)
    for _ in job.train(net, optimizer, loss=loss_of, data=DATA, batch=24, epochs=2, scaler=scaler, shuffle=False):
        pass
    plain, descent = parts()
    other, loss_of = scaling(plain)
    for start in [*range(0, 96, 24)] * 2:
        descent.zero_grad()
        other.scale(loss_of((INPUTS[start : start + 24], LABELS[start : start + 24]))).backward()
        other.step(descent)
        other.update()
    torch.testing.assert_close(weights(net), weights(plain))
    assert scaler.get_scale() == other.get_scale() == 4096.0
    before = job.digest
    scaler.update(7.0)
    assert job.digest != before


def test_a_program_written_for_ddp_gives_the_same_model_once_the_wrapper_is_dropped(tmp_path: Path) -> None:
    program = tmp_path / "ddp.py"
    program.write_text(
        """
import sys, torch, torch.distributed as dist
rank, root = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1); torch.manual_seed(1)
dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=2)
x = torch.randn(96, 6, generator=torch.Generator().manual_seed(3))
y = torch.randint(0, 3, (96,), generator=torch.Generator().manual_seed(4))
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
for start in range(0, 96, 24):
    part = slice(start + 12 * rank, start + 12 * rank + 12)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
    optimizer.step()
torch.save(net.state_dict(), f"{root}/{rank}.pt")
dist.destroy_process_group()
"""
    )
    ranks = [subprocess.Popen([sys.executable, str(program), str(rank), str(tmp_path)]) for rank in range(2)]
    assert [rank.wait(200) for rank in ranks] == [0, 0]
    other, _ = parts()
    other.load_state_dict(torch.load(tmp_path / "0.pt"))
    net, optimizer = parts()
    list(
        elastic.join(seed=1).train(
            net, optimizer, loss=loss_with(net), data=DATA, batch=24, micro_batches=2, shuffle=False
        )
    )
    torch.testing.assert_close(weights(net), weights(other))


def test_streams_are_trained_like_the_same_records_in_memory() -> None:
    rows = list(zip(INPUTS, LABELS, strict=True))
    sources = [rows[:40], rows[40:50], rows[50:]]
    models = []
    for data in (DATA, elastic.Streams(range(3), lambda place, offset: iter(sources[place][offset:]))):
        net, optimizer = parts()
        list(elastic.join(seed=1).train(net, optimizer, loss=loss_with(net), data=data, batch=24, shuffle=False))
        models.append(weights(net))
    assert torch.equal(*models)


class _Wrapped(torch.nn.parallel.DistributedDataParallel):
    def __init__(self) -> None:
        torch.nn.Module.__init__(self)


class _Endless(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def put(batch: Any) -> torch.Tensor:
    """`put_` has no deterministic form on any device."""
    return torch.zeros(4, requires_grad=True).clone().put_(torch.tensor([0, 0]), batch[0][0, :2]).sum()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"model": _Wrapped()}, "WrappedModel", "drop the wrapper"),
        ({"data": _Endless()}, "NotReadable", "elastic.Streams"),
        ({"backend": "mpi"}, "BadBackend", "gloo, nccl"),
        ({"backend": "nccl"}, "BadBackend", "put the model on a GPU"),
        ({"loss": put}, "NotDeterministic", "mode='fast'"),
        ({"loss": lambda batch: batch[0]}, "NotAScalar", "return its mean"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_advice(changes: dict[str, Any], code: str, words: str) -> None:
    net, optimizer = parts()
    given = {"model": net, "loss": loss_with(net), "data": DATA} | changes
    with pytest.raises(ElasticError) as caught:
        list(elastic.join().train(given.pop("model"), optimizer, batch=8, **given))
    assert caught.value.code == code
    assert words in caught.value.hint


def test_a_dataset_whose_length_changed_since_the_checkpoint_is_refused_and_nothing_overwritten(tmp_path: Path) -> None:
    kept = elastic.Checkpoints(str(tmp_path), every=2)

    def train(data: Any) -> None:
        net, optimizer = parts()
        list(elastic.join(seed=1).train(net, optimizer, loss=loss_with(net), data=data, batch=24, checkpoints=kept))

    train(DATA)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert before
    with pytest.raises(ElasticError, match="records was 96 and is now 72") as caught:
        train(torch.utils.data.TensorDataset(INPUTS[:72], LABELS[:72]))
    assert caught.value.code == "OtherCheckpoint"
    assert "choose an empty checkpoint directory" in caught.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_group_that_is_cut_while_the_device_works_is_broken_even_if_the_device_finishes() -> None:
    severed = threading.Event()
    answers = iter([False, False, True])
    watch(lambda: next(answers), severed)
    severed.set()
    with pytest.raises(GroupBroken):
        watch(lambda: True, severed)


def test_a_cut_aborts_the_communicator_without_waiting_for_it() -> None:
    aborted, release = threading.Event(), threading.Event()

    class Stuck:
        def abort(self) -> None:
            aborted.set()
            release.wait(60)

    group = ProcessGroup(0, 2, nccl=True)
    group._nccl = Stuck()
    group.cut()
    assert aborted.wait(60)
    release.set()
    with pytest.raises(GroupBroken):
        watch(lambda: True, group._severed)


def test_a_copy_in_shared_memory_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    net, optimizer = parts()
    list(elastic.join().train(net, optimizer, loss=loss_with(net), data=DATA, batch=24))
    state = TrainingState({"model": net, "optimizer": optimizer})
    memory = Stager(tmp_path, "w")
    memory.begin(4, state.capture())
    memory.settle()
    copy = newest_copy(tmp_path)
    assert copy is not None
    assert copy.step == 4
    other, slower = parts(seed=9)
    fresh = TrainingState({"model": other, "optimizer": slower})
    fresh.restore(copy.load())
    assert fresh.digest() == state.digest()


def test_a_copy_that_takes_its_time_is_not_changed_by_the_next_forward_pass() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    state = TrainingState({"model": net})
    taken, digest = state.capture_until_update(), state.digest()
    net(INPUTS)
    assert state.digest() != digest, "a forward pass changes the running statistics"
    assert taken.digest() == digest


def test_the_next_worker_of_a_place_writes_into_the_files_of_the_last(tmp_path: Path) -> None:
    net, optimizer = parts()
    state = TrainingState({"model": net, "optimizer": optimizer})
    before = Stager(tmp_path, "0")
    for step in (1, 2):
        before.begin(step, state.capture())
        before.settle()
    files = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    before.close()
    after = Stager(tmp_path, "0")
    after.begin(3, state.capture())
    after.settle()
    held = [copy.step for copy in map(read_copy, sorted(files)) if copy is not None]
    assert sorted(held) == [2, 3], "the older copy is the one that was written over"
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == files


def test_room_is_made_before_the_first_copy_and_used_by_it(tmp_path: Path) -> None:
    net, optimizer = parts()
    state = TrainingState({"model": net, "optimizer": optimizer})
    memory = Stager(tmp_path, "0")
    memory.prepare(state.capture())
    memory.settle()
    made = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert len(made) == 2
    assert newest_copy(tmp_path) is None, "empty room is not a copy"
    for step in (1, 2):
        memory.begin(step, state.capture())
        memory.before_change()
    memory.close()
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == made
    assert sorted(copy.step for copy in map(read_copy, made) if copy is not None) == [1, 2]


def test_making_room_for_a_larger_state_leaves_the_newest_copy_alone(tmp_path: Path) -> None:
    small = torch.nn.Linear(4, 4)
    before = Stager(tmp_path, "0")
    for step in (1, 2):
        before.begin(step, TrainingState({"model": small}).capture())
    before.close()
    after = Stager(tmp_path, "0")
    after.prepare(TrainingState({"model": torch.nn.Linear(400, 400)}).capture())
    after.close()
    copy = newest_copy(tmp_path)
    assert copy is not None
    assert copy.step == 2


def test_what_a_copy_is_for_does_not_hold_an_update_up(tmp_path: Path) -> None:
    """Only the copy reads the state: starting the process that saves it may take as long as it likes."""
    go_on, in_time = threading.Event(), []
    memory = Stager(tmp_path, "0")
    memory.begin(
        1, TrainingState({"model": torch.nn.Linear(4, 4)}).capture(), lambda path: in_time.append(go_on.wait(60))
    )
    memory.before_change()
    assert newest_copy(tmp_path) is not None
    go_on.set()
    memory.close()
    assert in_time == [True]


def test_files_that_a_dying_worker_still_holds_are_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.elastic.checkpoint.staging.WAIT_FOR_THE_DEAD", 0.1)
    net, optimizer = parts()
    snapshot = TrainingState({"model": net, "optimizer": optimizer}).capture()
    dying = Stager(tmp_path, "0")
    dying.begin(1, snapshot)
    dying.settle()
    held = {path.stat().st_ino for path in tmp_path.iterdir()}
    after = Stager(tmp_path, "0")
    for step in (2, 3):
        after.begin(step, snapshot)
        after.settle()
    assert held.isdisjoint(path.stat().st_ino for path in tmp_path.iterdir())


def test_a_copy_that_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    net, optimizer = parts()
    memory = Stager(tmp_path, "w")
    memory.begin(1, TrainingState({"model": net, "optimizer": optimizer}).capture())
    with pytest.raises(ElasticError, match="no room for a copy") as caught:
        memory.settle()
    assert "emptyDir" in caught.value.hint
    assert not list(tmp_path.iterdir())
