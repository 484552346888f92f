"""Features of training programs: clipping, accumulation, schedulers, mixed precision, streams, staging of state."""

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
from torchyard.elastic.checkpoint.staged import newest_staged, read_staged
from torchyard.elastic.checkpoint.staging import Stager
from torchyard.elastic.elasticai.controller import create_elastic_controller
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.world.process_group import GroupBroken, ProcessGroup, wait_for_device
from torchyard.elastic.world.runtime import WorkerRuntime
from torchyard.elastic.world.state import TrainingState

pytestmark = pytest.mark.train
torch.set_num_threads(1)
INPUTS = torch.randn(96, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.randint(0, 3, (96,), generator=torch.Generator().manual_seed(4))
DATA = torch.utils.data.TensorDataset(INPUTS, LABELS)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    """Switch off strict mode, which holds for the whole process."""
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
def test_clipping_accumulation_and_a_scheduler_match_a_plain_loop(mode: str) -> None:
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


def test_mixed_precision_matches_a_plain_loop_and_the_scale_is_part_of_the_state() -> None:
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
    earlier = job.digest
    scaler.update(7.0)
    assert job.digest != earlier


def test_a_ddp_program_gives_the_same_model_without_the_wrapper(tmp_path: Path) -> None:
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


def loss_with_put(batch: Any) -> torch.Tensor:
    """`put_` has no deterministic form on any device."""
    return torch.zeros(4, requires_grad=True).clone().put_(torch.tensor([0, 0]), batch[0][0, :2]).sum()


class _OwnBatches(torch.utils.data.BatchSampler):
    """Batches of different sizes."""


def loader_with(kind: type[torch.utils.data.BatchSampler]) -> Any:
    sampler = kind(torch.utils.data.SequentialSampler(DATA), 24, False)
    return torch.utils.data.DataLoader(DATA, batch_sampler=sampler)


def test_the_batch_sampler_of_torch_is_taken_over() -> None:
    models = []
    for data, batch in ((DATA, 24), (loader_with(torch.utils.data.BatchSampler), None)):
        net, optimizer = parts()
        list(elastic.join(seed=1).train(net, optimizer, loss=loss_with(net), data=data, batch=batch, shuffle=False))
        models.append(weights(net))
    assert torch.equal(*models)


def test_a_model_that_is_sharded_with_fsdp2_is_refused() -> None:
    from torch.distributed.fsdp import fully_shard

    store = torch.distributed.HashStore()  # type: ignore[attr-defined]  # torch does not export it to mypy
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net, _ = parts()
        fully_shard(net, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with pytest.raises(ElasticError, match=r"0\.weight is a part of a parameter") as caught:
            elastic.join().train(net, optimizer, loss=loss_with(net), data=DATA, batch=8)
    finally:
        torch.distributed.destroy_process_group()
    assert "remove fully_shard" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "code", "hint"),
    [
        ({"data": loader_with(_OwnBatches), "batch": None}, "BatchSampler", "a sampler instead of the batch_sampler"),
        ({"also": {"counter": [1]}}, "NotStateful", "optimizers, schedulers, scalers"),
        ({"model": _Wrapped()}, "WrappedModel", "remove the wrapper"),
        ({"data": _Endless()}, "NotReadable", "elastic.Streams"),
        ({"backend": "mpi"}, "BadBackend", "gloo, nccl"),
        ({"backend": "nccl"}, "BadBackend", "move the model to a GPU"),
        ({"loss": loss_with_put}, "NotDeterministic", "mode='fast'"),
        ({"loss": lambda batch: batch[0]}, "NotAScalar", "return the mean loss"),
    ],
)
def test_unsupported_arguments_of_train_are_refused_with_a_hint(changes: dict[str, Any], code: str, hint: str) -> None:
    net, optimizer = parts()
    arguments: dict[str, Any] = {"model": net, "loss": loss_with(net), "data": DATA, "batch": 8} | changes
    with pytest.raises(ElasticError) as caught:
        list(elastic.join().train(arguments.pop("model"), optimizer, **arguments))
    assert caught.value.code == code
    assert hint in caught.value.hint


def test_a_dataset_whose_length_changed_since_the_checkpoint_is_refused_and_nothing_overwritten(tmp_path: Path) -> None:
    checkpoints = elastic.Checkpoints(str(tmp_path), every=2)

    def train(data: Any) -> None:
        net, optimizer = parts()
        list(
            elastic.join(seed=1).train(
                net, optimizer, loss=loss_with(net), data=data, batch=24, checkpoints=checkpoints
            )
        )

    train(DATA)
    earlier = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert earlier
    with pytest.raises(ElasticError, match="records was 96 and is now 72") as caught:
        train(torch.utils.data.TensorDataset(INPUTS[:72], LABELS[:72]))
    assert caught.value.code == "OtherCheckpoint"
    assert "use an empty checkpoint directory" in caught.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == earlier


def test_a_schedule_does_not_warn_a_worker_that_joins_late_of_steps_that_others_have_made(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def receive_state(runtime: WorkerRuntime, config: object) -> None:
        runtime.step = 3

    monkeypatch.setattr(WorkerRuntime, "start", receive_state)
    monkeypatch.setattr("torchyard.elastic.elasticai.controller.start_sidecar", lambda: None)
    controller = create_elastic_controller(batch_size=5, num_epochs=2, dataset_size=60)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    controller._start()
    scheduler.step()
    assert [str(warning.message) for warning in recwarn] == []


def test_an_aborted_group_is_broken_even_if_the_device_finishes() -> None:
    aborted = threading.Event()
    answers = iter([False, False, True])
    wait_for_device(lambda: next(answers), aborted)
    aborted.set()
    with pytest.raises(GroupBroken):
        wait_for_device(lambda: True, aborted)


def test_abort_does_not_wait_for_the_communicator() -> None:
    aborted, release = threading.Event(), threading.Event()

    class Stuck:
        def abort(self) -> None:
            aborted.set()
            release.wait(60)

    group = ProcessGroup(0, 2, nccl=True)
    group._nccl = Stuck()
    group.abort()
    assert aborted.wait(60)
    release.set()
    with pytest.raises(GroupBroken):
        wait_for_device(lambda: True, group._aborted)


def test_a_staged_state_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    net, optimizer = parts()
    list(elastic.join().train(net, optimizer, loss=loss_with(net), data=DATA, batch=24))
    state = TrainingState({"model": net, "optimizer": optimizer})
    stager = Stager(tmp_path, "w")
    stager.stage(4, state.capture())
    stager.wait()
    staged = newest_staged(tmp_path)
    assert staged is not None
    assert staged.step == 4
    other, slower = parts(seed=9)
    fresh = TrainingState({"model": other, "optimizer": slower})
    fresh.restore(staged.load())
    assert fresh.digest() == state.digest()


def test_a_snapshot_until_the_next_update_is_not_changed_by_a_forward_pass() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    state = TrainingState({"model": net})
    snapshot, digest = state.capture_until_update(), state.digest()
    net(INPUTS)
    assert state.digest() != digest, "a forward pass changes the running statistics"
    assert snapshot.digest() == digest


def test_a_replacement_worker_reuses_the_staging_files_of_its_predecessor(tmp_path: Path) -> None:
    net, optimizer = parts()
    state = TrainingState({"model": net, "optimizer": optimizer})
    earlier = Stager(tmp_path, "0")
    for step in (1, 2):
        earlier.stage(step, state.capture())
        earlier.wait()
    files = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    earlier.close()
    later = Stager(tmp_path, "0")
    later.stage(3, state.capture())
    later.wait()
    steps = [staged.step for staged in map(read_staged, sorted(files)) if staged is not None]
    assert sorted(steps) == [2, 3], "the older state is the one that is replaced"
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == files


def test_prepared_staging_files_are_used_by_the_first_states(tmp_path: Path) -> None:
    net, optimizer = parts()
    state = TrainingState({"model": net, "optimizer": optimizer})
    stager = Stager(tmp_path, "0")
    stager.prepare(state.capture())
    stager.wait()
    files = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert len(files) == 2
    assert newest_staged(tmp_path) is None, "an empty file is not a staged state"
    for step in (1, 2):
        stager.stage(step, state.capture())
        stager.synchronize_staging()
    stager.close()
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == files
    assert sorted(staged.step for staged in map(read_staged, files) if staged is not None) == [1, 2]


def test_preparing_for_a_larger_state_keeps_the_newest_staged_state(tmp_path: Path) -> None:
    small = torch.nn.Linear(4, 4)
    earlier = Stager(tmp_path, "0")
    for step in (1, 2):
        earlier.stage(step, TrainingState({"model": small}).capture())
    earlier.close()
    later = Stager(tmp_path, "0")
    later.prepare(TrainingState({"model": torch.nn.Linear(400, 400)}).capture())
    later.close()
    staged = newest_staged(tmp_path)
    assert staged is not None
    assert staged.step == 2


def test_saving_a_staged_state_does_not_delay_an_update(tmp_path: Path) -> None:
    """Only the copy reads the state: the process that saves it may start at any time."""
    release, in_time = threading.Event(), []
    stager = Stager(tmp_path, "0")
    stager.stage(
        1, TrainingState({"model": torch.nn.Linear(4, 4)}).capture(), lambda path: in_time.append(release.wait(60))
    )
    stager.synchronize_staging()
    assert newest_staged(tmp_path) is not None
    release.set()
    stager.close()
    assert in_time == [True]


def test_staging_files_locked_by_a_dying_worker_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard.elastic.checkpoint.staging.WAIT_FOR_OWNER", 0.1)
    net, optimizer = parts()
    snapshot = TrainingState({"model": net, "optimizer": optimizer}).capture()
    dying = Stager(tmp_path, "0")
    dying.stage(1, snapshot)
    dying.wait()
    steps = {path.stat().st_ino for path in tmp_path.iterdir()}
    later = Stager(tmp_path, "0")
    for step in (2, 3):
        later.stage(step, snapshot)
        later.wait()
    assert steps.isdisjoint(path.stat().st_ino for path in tmp_path.iterdir())


def test_a_state_larger_than_the_shared_memory_is_refused_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    net, optimizer = parts()
    stager = Stager(tmp_path, "w")
    stager.stage(1, TrainingState({"model": net, "optimizer": optimizer}).capture())
    with pytest.raises(ElasticError, match="no space for a state") as caught:
        stager.wait()
    assert "emptyDir" in caught.value.hint
    assert not list(tmp_path.iterdir())
