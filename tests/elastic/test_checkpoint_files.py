"""Checkpoint directories: they are complete or do not count, damage is reported, and no valid one is removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from torchyard.elastic.checkpoint import files
from torchyard.elastic.cli import main
from torchyard.elastic.errors import ElasticError


def save(root: Path, step: int, content: bytes = b"weights") -> Path:
    temporary = root / f"step-{step:010d}.1.writing"
    temporary.mkdir(parents=True)
    (temporary / "data").write_bytes(content)
    final = files.checkpoint_path(root, step)
    files.publish(temporary, final, files.build_manifest(temporary, step=step, job="j", order={"records": 3}))
    return final


def test_the_newest_checkpoint_is_found_and_valid(tmp_path: Path) -> None:
    save(tmp_path, 100)
    newest = save(tmp_path, 200)
    newest_checkpoint = files.newest_valid(tmp_path)
    assert newest_checkpoint is not None
    assert (newest_checkpoint[0], newest_checkpoint[1].step) == (newest, 200)


def test_an_incomplete_directory_of_a_dead_writer_is_not_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 100)
    (tmp_path / "step-0000000200.77.writing").mkdir()
    assert [folder.name for folder in files.list_checkpoints(tmp_path)] == ["step-0000000100"]


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (lambda f: (f / "data").write_bytes(b"wei"), "DamagedCheckpoint", "has 3 bytes, but 7 were written"),
        (lambda f: (f / "data").write_bytes(b"WEIGHTS"), "DamagedCheckpoint", "differs from what was written"),
        (lambda f: (f / "data").unlink(), "DamagedCheckpoint", "is missing"),
        (lambda f: (f / "manifest.json").write_text("{"), "DamagedCheckpoint", "is not valid"),
        (lambda f: (f / "manifest.json").unlink(), "ForeignCheckpoint", "has no manifest.json"),
        (lambda f: (f / "manifest.json").write_text(json.dumps({"format": "x"})), "ForeignCheckpoint", "format 'x'"),
    ],
)
def test_a_damaged_checkpoint_is_reported_skipped_and_not_changed(
    tmp_path: Path, damage: object, code: str, message: str
) -> None:
    older, newer = save(tmp_path, 1), save(tmp_path, 2)
    assert callable(damage)
    damage(newer)
    with pytest.raises(ElasticError, match=message) as caught:
        files.verify(newer)
    assert caught.value.code == code
    assert caught.value.hint
    newest_checkpoint = files.newest_valid(tmp_path)
    assert newest_checkpoint is not None
    assert newest_checkpoint[0] == older
    assert newer.exists()


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    files.prune(tmp_path, 2)
    assert [folder.name[-1] for folder in files.list_checkpoints(tmp_path)] == ["3", "4"]


def test_saving_a_step_twice_keeps_the_first(tmp_path: Path) -> None:
    first = save(tmp_path, 5, b"first")
    save(tmp_path, 5, b"again")
    assert (first / "data").read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_checkpoint_of_the_same_step_is_renamed_not_deleted(tmp_path: Path) -> None:
    first = save(tmp_path, 5, b"first")
    (first / "data").write_bytes(b"torn")
    save(tmp_path, 5, b"again")
    assert (first / "data").read_bytes() == b"again"
    assert [entry.suffix for entry in sorted(tmp_path.iterdir())] == ["", ".damaged"]
    assert files.list_checkpoints(tmp_path) == [first]


def test_the_command_lists_verifies_and_reports_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1)
    damaged = save(tmp_path, 2)
    (damaged / "data").write_bytes(b"x")
    assert main(["checkpoints", "list", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("sha256") == 2
    assert main(["checkpoints", "verify", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert "step 1" in output
    assert "valid" in output
    assert "DamagedCheckpoint" in output
    assert main(["checkpoints", "inspect", str(files.checkpoint_path(tmp_path, 1))]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 1
    shutil.rmtree(tmp_path / "step-0000000001")
    assert main(["checkpoints", "list", str(tmp_path / "nowhere")]) == 2
    assert "not a directory" in capsys.readouterr().err
