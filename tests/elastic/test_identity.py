"""A checkpoint and a job belong to one training: another one is refused, started afresh, or continued on purpose."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from tests.elastic.zoo_programs import PROGRAMS

from torchyard import elastic
from torchyard.elastic.chaos import ChaosJob
from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.staged import owner_of
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.run import RunOptions

pytestmark = pytest.mark.train
torch.set_num_threads(1)
DATA = torch.utils.data.TensorDataset(
    torch.randn(48, 6, generator=torch.Generator().manual_seed(3)),
    torch.randint(0, 3, (48,), generator=torch.Generator().manual_seed(4)),
)


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def train(
    root: Path, *, lr: float = 0.1, epochs: int = 2, resume: str | None = None, dropout: float = 0.1, **changes: Any
) -> tuple[int, Any, str]:
    """Train with checkpoints; return how many steps were made, the optimizer, and the digest."""
    job = elastic.join(seed=1, resume=resume, settings=changes)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    steps = job.train(
        net,
        optimizer,
        loss=lambda batch: torch.nn.functional.cross_entropy(net(batch[0]), batch[1]),
        data=DATA,
        batch=12,
        epochs=epochs,
        scheduler=scheduler,
        checkpoints=elastic.Checkpoints(str(root), every=100),
    )
    return len(list(steps)), optimizer, job.digest


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr": 0.2}, "optimizer.0.initial_lr was 0.1 and is now 0.2"),
        ({"dropout": 0.3}, "model was"),
        ({"corpus": "other"}, "corpus was None and is now 'other'"),
    ],
)
def test_a_finished_checkpoint_of_another_training_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert train(tmp_path)[0] == 8
    with pytest.raises(ElasticError, match=words) as caught:
        train(tmp_path, **changes)
    assert caught.value.code == "OtherCheckpoint"
    assert "--fresh" in caught.value.hint
    assert "--resume-anyway" in caught.value.hint


def test_a_finished_training_says_that_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = train(tmp_path)[2]
    assert "training resumed" not in capsys.readouterr().err
    assert train(tmp_path)[::2] == (0, digest)
    assert "training resumed: step=8 of=8" in (errors := capsys.readouterr().err)
    assert "nothing is left to train" in errors


def test_a_fresh_start_trains_again_and_sets_earlier_checkpoints_aside(tmp_path: Path) -> None:
    train(tmp_path)
    steps, _, digest = train(tmp_path, lr=0.2, resume="fresh")
    assert steps == 8
    assert [folder.name for folder in files.list_checkpoints(tmp_path)] == ["step-0000000008"]
    assert list(tmp_path.glob("step-*.before-*"))
    assert train(tmp_path, lr=0.2)[::2] == (0, digest)


def test_more_epochs_continue_a_finished_training(tmp_path: Path) -> None:
    train(tmp_path / "short")
    steps, _, digest = train(tmp_path / "short", epochs=5)
    assert steps == 12
    assert train(tmp_path / "long", epochs=5)[::2] == (20, digest)


def test_continuing_anyway_scales_the_learning_rate_and_keeps_what_the_schedule_did(tmp_path: Path) -> None:
    _, optimizer, _ = train(tmp_path)
    before = optimizer.param_groups[0]["lr"]
    steps, optimizer, _ = train(tmp_path, lr=0.2, epochs=2, resume="anyway")
    assert steps == 0
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 * before)
    assert optimizer.param_groups[0]["initial_lr"] == 0.2


def test_a_state_in_shared_memory_belongs_to_the_settings_of_its_training() -> None:
    assert owner_of("t", {"optimizer.0.lr": 0.1}) != owner_of("t", {"optimizer.0.lr": 0.2})
    assert owner_of("t", {"a": 1, "b": 2}) == owner_of("t", {"b": 2, "a": 1})
    assert owner_of("t", {"a": 1}) != owner_of("other", {"a": 1})


def test_a_job_directory_of_another_training_is_refused_and_can_be_started_afresh(tmp_path: Path) -> None:
    import sys
    from dataclasses import replace

    def options(*arguments: str) -> RunOptions:
        command = (sys.executable, str(PROGRAMS / "mlp.py"), "--epochs", "1", *arguments)
        return RunOptions(command, tmp_path, workers=1, lease=10.0, quiet=True)

    with ChaosJob(options()) as chaos:
        assert chaos.wait(120).cause == "finished"
    with ChaosJob(options("--lr", "0.5")) as changed:
        stop = changed.wait(120)
    assert stop.cause == "failed"
    assert "optimizer.0.lr was 0.01 and is now 0.5" in stop.message
    assert "--fresh" in stop.message
    with ChaosJob(replace(options("--lr", "0.5"), resume="fresh")) as fresh:
        assert fresh.wait(120).cause == "finished"
    with ChaosJob(replace(options("--lr", "0.25"), resume="anyway")) as anyway:
        assert anyway.wait(120).cause == "finished"
