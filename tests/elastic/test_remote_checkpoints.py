"""Checkpoints in an object store: a manifest completes them, damaged ones are skipped, missing drivers are named."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import CheckpointCache, CheckpointStore
from torchyard.elastic.cli import main
from torchyard.elastic.errors import ElasticError

with_drivers = pytest.mark.train
"""The environment of training programs has the drivers, if any has."""


def saved(root: Path, step: int) -> Path:
    folder = files.checkpoint_path(root, step)
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(b"x" * step)
    files.publish(
        folder.rename(folder.with_suffix(".writing")),
        folder,
        files.build_manifest(folder.with_suffix(".writing"), step=step, job="j", order={}),
    )
    return folder


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server that speaks S3, in this process, and a bucket on it."""
    if importlib.util.find_spec("s3fs") is None or importlib.util.find_spec("moto") is None:
        pytest.skip("s3fs and moto[server] are not installed")
    server = importlib.import_module("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        CheckpointStore("s3://torchyard")._files.mkdir("torchyard")
        yield "s3://torchyard"
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    """Checkpoints of steps 1 to 3 in a store of every kind that can be had here."""
    if importlib.util.find_spec("fsspec") is None:
        pytest.skip("fsspec is not installed")
    root = request.getfixturevalue("s3") if request.param == "s3" else f"{request.param}://{tmp_path}"
    checkpoint_store = CheckpointStore(f"{root}/{tmp_path.name}")
    for step in (1, 2, 3):
        checkpoint_store.send(saved(tmp_path / "local", step))
    return checkpoint_store


def spoil(store: CheckpointStore, name: str, content: bytes | None) -> None:
    """Change a file of a checkpoint behind its back, or remove it."""
    path = f"{store._root}/{name}"
    if content is None:
        store._files.rm_file(path)
    else:
        store._files.pipe_file(path, content)


@with_drivers
def test_the_newest_valid_checkpoint_is_fetched_once(store: CheckpointStore, tmp_path: Path) -> None:
    spoil(store, "step-0000000003/data", b"torn")
    cache = CheckpointCache(store, tmp_path / "cache")
    newest = cache.newest_valid()
    assert newest is not None
    assert newest[1].step == 2
    assert (newest[0] / "data").read_bytes() == b"xx"
    assert cache.newest_valid() is newest
    assert store._files.cat_file(f"{store._root}/step-0000000003/data") == b"torn"


@with_drivers
def test_a_checkpoint_without_a_manifest_does_not_count(store: CheckpointStore) -> None:
    spoil(store, f"step-0000000003/{files.MANIFEST}", None)
    assert store.names() == ["step-0000000001", "step-0000000002"]


@with_drivers
def test_only_the_newest_are_kept(store: CheckpointStore) -> None:
    assert store.prune(1) == ["step-0000000001", "step-0000000002"]
    assert store.names() == ["step-0000000003"]


@with_drivers
def test_a_checkpoint_of_another_process_is_found(store: CheckpointStore, tmp_path: Path) -> None:
    """Stores remember what they listed: what came later must be seen all the same."""
    assert len(store.names()) == 3
    CheckpointStore(store.url).send(saved(tmp_path / "local", 4))
    assert store.names()[-1] == "step-0000000004"


@with_drivers
def test_the_command_lists_and_verifies_a_store(store: CheckpointStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", "list", store.url]) == 0
    assert capsys.readouterr().out.count("step ") == 3
    spoil(store, "step-0000000002/data", b"no")
    assert main(["checkpoints", "verify", store.url]) == 1
    assert "step-0000000002  DamagedCheckpoint" in capsys.readouterr().out


TRAIN = """
import sys, torch
from torchyard import elastic
job = elastic.join(seed=1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(2)))
net = torch.nn.Linear(4, 1)
steps = job.train(net, torch.optim.Adam(net.parameters()), loss=lambda batch: net(batch[0]).pow(2).mean(), data=data,
    batch=8, epochs=4, checkpoints=elastic.Checkpoints(sys.argv[1], every=10) if sys.argv[1:2] else None)
first = None
for step in steps:
    first = first or step.number
    if step.number == int((sys.argv[2:] or [0])[0]): sys.exit()
print("began at", first, "model", job.digest)
"""


def train(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", TRAIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@with_drivers
def test_training_resumes_from_a_store(s3: str) -> None:
    train(f"{s3}/run", "25")
    began, model = train(f"{s3}/run")[2::2]
    assert began == "21"
    assert model == train()[4]


@pytest.mark.train
def test_a_program_that_exits_in_its_loop_keeps_its_checkpoints(tmp_path: Path) -> None:
    train(str(tmp_path), "25")
    assert [folder.name[-2:] for folder in files.list_checkpoints(tmp_path)] == ["10", "20"]


@pytest.mark.parametrize(("url", "driver"), [("s3://bucket/x", "s3fs"), ("gs://bucket/x", "gcsfs")])
def test_a_missing_driver_is_named_in_the_hint(url: str, driver: str) -> None:
    if importlib.util.find_spec(driver) is not None:
        pytest.skip(f"{driver} is installed")
    with pytest.raises(ElasticError) as caught:
        CheckpointStore(url)
    assert driver in caught.value.hint
