"""What requirements refer to decides whether they are installed again, and where from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from torchyard.jobs import dependencies
from torchyard.jobs.requirement_files import changed_times, pip_options
from torchyard.node.images.python import Python


@pytest.mark.parametrize(
    "line",
    [
        "./lib",
        "./lib[extra]; python_version > '3'",
        "-e lib",
        "--editable=./lib",
        "lib @ file:./lib",
        "-r base.txt",
        "-rbase.txt",
        "-c base.txt",
        "--requirement base.txt",
    ],
)
def test_a_changed_local_file_changes_the_list(tmp_path: Path, line: str) -> None:
    (tmp_path / "lib").mkdir()
    source = tmp_path / "lib" / "module.py"
    source.write_text("")
    (tmp_path / "base.txt").write_text("numpy\n./lib\n-r base.txt\n")
    before = changed_times([line], tmp_path)
    assert str(source) in [name for name, _ in before]
    (tmp_path / "lib" / "__pycache__").mkdir()
    (tmp_path / "lib" / "__pycache__" / "module.pyc").write_text("")
    assert changed_times([line], tmp_path) == before
    os.utime(source, (0, 0))
    assert changed_times([line], tmp_path) != before


def test_packages_of_an_index_have_no_files(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "x.py").write_text("")
    lines = ["numpy", "x @ https://example.com/x.whl", "git+https://example.com/x", "--index-url https://example.com"]
    assert changed_times(lines, tmp_path) == []


def test_options_reach_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.txt").write_text("--extra-index-url https://b.example\n")
    requirements = ["--index-url https://a.example", "-r base.txt", "-e .", "private", "--require-hashes"]
    options = ["--index-url https://a.example", "--extra-index-url https://b.example"]
    assert pip_options(requirements, tmp_path) == options
    installed: list[str] = []

    def run(command: list[str], directory: Path) -> str:
        assert command[:2] == ["pip", "install"]
        installed.extend(Path(command[-1]).read_text().splitlines())
        return ""

    monkeypatch.setattr(dependencies, "_run", run)
    monkeypatch.setattr(dependencies, "_pip", lambda _: ["pip"])
    monkeypatch.setattr(dependencies, "_missing", lambda *_: ["private==1.0"])
    dependencies._install(requirements, cast(Python, None), tmp_path, tmp_path / "target")
    assert installed == [*options, "private==1.0"]


def test_what_another_command_has_installed_is_used(tmp_path: Path) -> None:
    partial, target = tmp_path / "partial", tmp_path / "target"
    for directory, text in ((partial, "mine"), (target, "theirs")):
        directory.mkdir()
        (directory / "file").write_text(text)
    dependencies._publish(partial, target)
    assert (target / "file").read_text() == "theirs"
    assert not partial.exists()
