"""A manifest of unknown origin leads to no file outside its checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from torchyard.elastic.agent.agent import create_private_dir
from torchyard.elastic.checkpoint import files
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.job_record import JobRecord, write_record


def write_checkpoint(root: Path, **changes: Any) -> Path:
    """A checkpoint with one file, and with these changes of its manifest."""
    folder = files.checkpoint_path(root, 1)
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(b"weights")
    record = {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    manifest = {"step": 1, "job": "j", "order": {}, "files": {"data": record}, "sha256": "", "format": files.FORMAT}
    (folder / files.MANIFEST).write_text(json.dumps(manifest | changes))
    return folder


def record_of(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_the_unchanged_checkpoint_is_valid(tmp_path: Path) -> None:
    assert files.verify(write_checkpoint(tmp_path)).step == 1


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "..", ".", "", "a/b", "x\0y", "manifest.json"])
def test_a_name_that_leads_out_of_the_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"key")
    folder = write_checkpoint(tmp_path / "root", files={name: record_of(secret)})
    with pytest.raises(ElasticError, match="is not the name of a file") as caught:
        files.verify(folder)
    assert str(folder) in caught.value.message


@pytest.mark.parametrize("name", ["data", "manifest.json"])
def test_a_link_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(tmp_path / "root")
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(ElasticError) as caught:
        files.verify(folder)
    assert str(folder / name) in caught.value.message
    assert caught.value.code == "ForeignCheckpoint"


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, files={"data": {"size": 0, "sha256": hashlib.sha256().hexdigest()}})
    (folder / "data").unlink()
    os.mkfifo(folder / "data")
    with pytest.raises(ElasticError, match="not a regular file"):
        files.verify(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": "1"},
        {"step": True},
        {"step": 1 << 70},
        {"job": 7},
        {"order": []},
        {"files": []},
        {"files": {"data": 3}},
        {"files": {"data": {"size": -7, "sha256": "0" * 64}}},
        {"files": {"data": {"size": 7.0, "sha256": "0" * 64}}},
        {"files": {"data": {"size": 7, "sha256": "x"}}},
        {"later": 1},
    ],
)
def test_a_manifest_with_other_types_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = write_checkpoint(tmp_path, **changes)
    with pytest.raises(ElasticError, match="is not valid") as caught:
        files.verify(folder)
    assert str(folder) in caught.value.message


@pytest.mark.parametrize("content", ["[" * 200_000, "9" * 5000, "[]", "null", "\ud800"])
def test_a_manifest_that_no_parser_accepts_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / files.MANIFEST).write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(ElasticError):
        files.verify(folder)
    assert files.newest_valid(tmp_path) is None


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    os.truncate(folder / files.MANIFEST, 1 << 40)
    with pytest.raises(ElasticError, match="more than"):
        files.verify(folder)


def test_a_skipped_checkpoint_is_reported(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, step=-1)
    skipped: list[tuple[Path, str]] = []
    assert files.newest_valid(tmp_path, lambda path, error: skipped.append((path, error.code))) is None
    assert skipped == [(folder, "DamagedCheckpoint")]


def test_a_linked_checkpoint_is_not_removed(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "elsewhere")
    root = tmp_path / "root"
    root.mkdir()
    (root / "step-0000000001").symlink_to(target)
    for step in (2, 3):
        files.checkpoint_path(root, step).mkdir()
    files.prune(root, 1)
    assert (target / "data").exists()
    assert not files.checkpoint_path(root, 2).exists()


def test_a_directory_in_shared_memory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Its name can be predicted, and every user can write to /dev/shm."""
    (tmp_path / "attacker").mkdir()
    (tmp_path / "memory").symlink_to(tmp_path / "attacker")
    with pytest.raises(ElasticError, match="belongs to another user or is not a directory"):
        create_private_dir(tmp_path / "memory")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to create a directory of another user")
def test_a_directory_in_shared_memory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    os.chown(tmp_path / "memory", 12345, 12345)
    with pytest.raises(ElasticError, match="belongs to another user"):
        create_private_dir(tmp_path / "memory")


def test_a_directory_in_shared_memory_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir(mode=0o777)
    create_private_dir(tmp_path / "memory")
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o700


def test_the_record_with_the_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / ".job.json.new").write_text("left over")
    (tmp_path / ".job.json.new").chmod(0o666)
    record: JobRecord = {"job": "j", "token": "secret", "address": "", "workers": 1, "next_worker": 0}  # type: ignore[typeddict-item]
    write_record(tmp_path, record)
    assert (tmp_path / "job.json").stat().st_mode & 0o777 == 0o600
