"""`yard image save`: what an archive contains, and what it leaves behind."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from tests.node.test_images import build
from tests.node.test_images import store as store  # noqa: PLC0414 - a fixture

from torchyard.node.images import save
from torchyard.node.images.atomic_file import replacing
from torchyard.node.images.load import load
from torchyard.node.images.model import ImageError
from torchyard.node.images.store import ImageStore

SMALL = "FROM busybox\nENV GREETING=hello\n"


async def test_the_machine_is_packed_only_on_request(store: ImageStore, tmp_path: Path) -> None:
    await build(store, tmp_path / "context", SMALL)
    with pytest.raises(ImageError, match=r"programs of this machine, which take \d+\.\d GB") as refused:
        save.save(store, "local/mine:1", tmp_path / "image.tar")
    assert "--with-machine" in refused.value.hint
    assert "--layers-only" in refused.value.hint
    assert not (tmp_path / "image.tar").exists()
    archive = save.save(store, "local/mine:1", tmp_path / "image.tar", with_machine=False)
    assert archive.stat().st_size < 100_000


async def test_an_archive_with_the_machine_loads_again(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "machine"
    (machine / "bin").mkdir(parents=True)
    (machine / "bin" / "tool").write_bytes(os.urandom(3000))
    await build(store, tmp_path / "context", SMALL)
    monkeypatch.setattr(save, "machine_paths", lambda image: [machine])
    monkeypatch.setattr(save, "_REPORT_BYTES", 1000)
    reports: list[tuple[int, int]] = []
    archive = save.save(
        store, "local/mine:1", tmp_path / "i.tar", with_machine=True, report=lambda *report: reports.append(report)
    )
    assert reports[-1] == (3000, 3000)
    load(store, archive, name="local/loaded:1")
    root = store.resolve("local/loaded:1").root.layers[0]
    loaded = root / machine.relative_to("/") / "bin" / "tool"
    assert loaded.read_bytes() == (machine / "bin" / "tool").read_bytes()
    with tarfile.open(archive) as packed:
        index = packed.extractfile("index.json")
        assert index is not None
        assert len(json.loads(index.read())["manifests"]) == 1


async def test_a_disk_that_is_too_small_is_named_before_anything_is_written(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build(store, tmp_path / "context", SMALL)
    monkeypatch.setattr(save, "machine_paths", lambda image: [tmp_path])
    monkeypatch.setattr(save, "_size", lambda path: 1 << 60)
    with pytest.raises(ImageError, match=r"takes \d+\.\d GB, and .* has .* free"):
        save.save(store, "local/mine:1", tmp_path / "image.tar", with_machine=True)
    assert not list(tmp_path.glob("*image.tar*"))


def test_the_machine_has_every_path_once(store: ImageStore) -> None:
    paths = save.machine_paths(store.resolve("python:3"))
    assert not [path for path in paths for other in paths if other in path.parents and not other.is_symlink()]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(target) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_bytes() == b"old"
    with replacing(target) as file:
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_bytes() == b"new"


def test_a_mapping_is_listed_and_removed(store: ImageStore) -> None:
    store.map("registry.example.com/team/*", "python:3")
    store.map("registry.example.com/other/*", "busybox")
    assert store.mappings() == {"registry.example.com/team/*": "python:3", "registry.example.com/other/*": "busybox"}
    with pytest.raises(ImageError, match="no image is mapped with the pattern") as refused:
        store.unmap("registry.example.com/taem/*")
    assert refused.value.hint == "did you mean registry.example.com/team/*?"
    store.unmap("registry.example.com/team/*")
    assert list(store.mappings()) == ["registry.example.com/other/*"]
    assert store.lacks("registry.example.com/team/a:1")
