"""Checkpoints in an object store: complete by their manifest, the damaged passed over, drivers asked for by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from torchyard.elastic.checkpoint import files
from torchyard.elastic.checkpoint.remote import Cache, Store
from torchyard.elastic.cli import main
from torchyard.elastic.errors import ElasticError

needs_fsspec = pytest.mark.skipif(importlib.util.find_spec("fsspec") is None, reason="fsspec is not installed")


def saved(root: Path, step: int) -> Path:
    folder = files.place(root, step)
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(b"x" * step)
    files.publish(
        folder.rename(folder.with_suffix(".writing")),
        folder,
        files.describe(folder.with_suffix(".writing"), step=step, job="j", order={}),
    )
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(f"file://{tmp_path}/bucket")
    for step in (1, 2, 3):
        made.send(saved(tmp_path / "local", step))
    return made


@needs_fsspec
def test_the_newest_sound_one_is_fetched_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "bucket" / "step-0000000003" / "data").write_bytes(b"torn")
    cache = Cache(store, tmp_path / "cache")
    found = cache.newest_sound()
    assert found is not None
    assert found[1].step == 2
    assert cache.newest_sound() is found
    assert (tmp_path / "bucket" / "step-0000000003" / "data").read_bytes() == b"torn"


@needs_fsspec
def test_one_without_a_manifest_is_not_there(store: Store, tmp_path: Path) -> None:
    (tmp_path / "bucket" / "step-0000000003" / files.MANIFEST).unlink()
    assert store.names() == ["step-0000000001", "step-0000000002"]


@needs_fsspec
def test_only_the_newest_are_kept(store: Store) -> None:
    assert store.retain(1) == ["step-0000000001", "step-0000000002"]
    assert store.names() == ["step-0000000003"]


@needs_fsspec
def test_the_command_lists_and_verifies_a_store(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoints", "list", store.url]) == 0
    assert capsys.readouterr().out.count("step ") == 3
    (tmp_path / "bucket" / "step-0000000002" / "data").write_bytes(b"no")
    assert main(["checkpoints", "verify", store.url]) == 1
    assert "step-0000000002  DamagedCheckpoint" in capsys.readouterr().out


@pytest.mark.parametrize(("url", "driver"), [("s3://bucket/x", "s3fs"), ("gs://bucket/x", "gcsfs")])
def test_a_missing_driver_is_asked_for_by_name(url: str, driver: str) -> None:
    if importlib.util.find_spec(driver) is not None:
        pytest.skip(f"{driver} is installed")
    with pytest.raises(ElasticError) as caught:
        Store(url)
    assert driver in caught.value.hint
