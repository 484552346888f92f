"""Which files of a folder `yard run` ships, what it reads in them, and options of scripts."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from torchyard.api.errors import YardError
from torchyard.cli.script_options import _parse_elastic
from torchyard.core.run.script_job import ScriptJob
from torchyard.jobs import workspace
from torchyard.jobs.dependencies import find_requirements
from torchyard.jobs.scripts import is_script_target, prepare_script
from torchyard.jobs.workspace import files_of, pack


def repository(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


def names(folder: Path) -> list[str]:
    return [path.as_posix() for path in files_of(folder)]


def test_the_files_of_repositories_below_are_shipped(tmp_path: Path) -> None:
    repository(tmp_path)
    repository(tmp_path / "library")
    (tmp_path / "library" / ".gitignore").write_text("*.bin\n")
    (tmp_path / "library" / "helper.py").write_text("")
    (tmp_path / "library" / "data.bin").write_text("")
    assert names(tmp_path) == ["library/.gitignore", "library/helper.py"]


def test_a_link_with_the_path_of_this_machine_leads_to_its_file_in_the_pods(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.txt").symlink_to(tmp_path / "data" / "a.txt")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path))) as archive:
        assert archive.getmember("links/a.txt").linkname == "../data/a.txt"


def test_a_file_that_is_deleted_while_it_is_packed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.log").write_text("line")
    monkeypatch.setattr(workspace, "files_of", lambda _: [Path("run.log"), Path("gone.log")])
    with pytest.raises(YardError, match=r"gone\.log cannot be copied to the pods: it changed while it was copied"):
        pack(tmp_path)


def test_requirements_that_editors_of_windows_have_written_are_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("six\r\n".encode("utf-16"))
    assert find_requirements(None, tmp_path) == ["six"]
    (tmp_path / "requirements.txt").write_bytes(b"torch \\\r\n  >=2\r\nsix\r\n")
    assert [line.replace(" ", "") for line in find_requirements(None, tmp_path)] == ["torch>=2", "six"]
    (tmp_path / "requirements.txt").write_bytes(b"six\n# caf\xe9\n")
    with pytest.raises(YardError, match=r"requirements\.txt: line 2 is not UTF-8"):
        find_requirements(None, tmp_path)


def test_a_misspelled_field_of_inline_metadata_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('# /// script\n# dependences = ["six"]\n# ///\n')
    with pytest.raises(YardError, match="unknown field dependences") as raised:
        find_requirements(script, tmp_path)
    assert raised.value.hint == "did you mean dependencies?"


@pytest.mark.parametrize(("layout", "sources"), [("src", "src"), ("", ".")])
def test_the_packages_of_a_project_can_be_imported_from_its_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, sources: str
) -> None:
    package = tmp_path / layout / "library"
    package.mkdir(parents=True)
    (package / "train.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "library"\nversion = "1"\n')
    monkeypatch.chdir(tmp_path)
    assert prepare_script(ScriptJob("", "library.train:main"))[0].sources == sources
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    (tmp_path / "train.py").write_text("")
    assert prepare_script(ScriptJob("", "train.py"))[0].sources is None


def test_a_method_is_a_target_and_a_manifest_with_a_colon_in_its_name_is_not() -> None:
    assert is_script_target("package.train:Trainer.fit")
    assert not is_script_target("a:job.yaml")


@pytest.mark.parametrize("bounds", ["²:3", "1:" + "9" * 5000, "4:1", "4", ":"])
def test_numbers_of_workers_that_are_none_are_refused(bounds: str) -> None:
    with pytest.raises(YardError, match="it is not MIN:MAX"):
        _parse_elastic(bounds)
