"""What `yard run` takes besides a small script: large folders, functions, packages, elastic trainings."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from tests.cli.test_jobs import call
from tests.cli.test_run_script import run
from tests.support.yard import Yard

from torchyard.api.errors import YardError
from torchyard.cli.script_options import _parse_elastic
from torchyard.core.run.script_job import PART_BYTES, ScriptJob, script_objects
from torchyard.jobs.dependencies import find_requirements
from torchyard.jobs.scripts import is_script_target, script_manifest
from torchyard.jobs.workspace import files_of, pack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import sys\n\n\ndef main(*words, lr: float = 1.0, name='x'):\n    print('called', words, lr * 2, name)\n"
    )
    return folder


def wheel(directory: Path, *, version: str) -> Path:
    """A package without dependencies."""
    name = f"tinypackage-{version}"
    file = directory / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tinypackage.py", f"VERSION = {version!r}\n")
        archive.writestr(
            f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: tinypackage\nVersion: {version}\n"
        )
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    return file


def test_a_target_is_a_script_a_function_or_a_manifest() -> None:
    assert is_script_target("a/train.py")
    assert is_script_target("package.train:main")
    assert not is_script_target("job.yaml")
    assert not is_script_target("-")
    assert not is_script_target("dir:with/colon.yaml")


def test_a_large_folder_is_split_into_parts_that_the_server_accepts() -> None:
    workspace = os.urandom(PART_BYTES * 2 + 10)
    *parts, training = script_objects(ScriptJob("j", "a.py"), workspace)
    assert [part["metadata"]["name"] for part in parts] == ["j-workspace", "j-workspace-1", "j-workspace-2"]
    names = [next(iter(part["binaryData"])) for part in parts]
    assert sorted(names) == names
    volume = training["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"][0]
    assert [source["configMap"]["name"] for source in volume["projected"]["sources"]] == [
        part["metadata"]["name"] for part in parts
    ]


def test_a_thousand_files_are_packed(project: Path) -> None:
    for number in range(1000):
        (project / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 20)
    assert len(files_of(project)) == 1001
    assert pack(project) == pack(project)


def test_the_first_source_of_requirements_counts(project: Path) -> None:
    script = project / "train.py"
    assert find_requirements(script, project) == []
    (project / "pyproject.toml").write_text('[project]\nname = "p"\ndependencies = ["from-project"]\n')
    assert find_requirements(script, project) == ["from-project"]
    (project / "requirements.txt").write_text("from-file\n")
    assert find_requirements(script, project) == ["from-file"]
    script.write_text('# /// script\n# dependencies = ["inline"]\n# ///\n')
    assert find_requirements(script, project) == ["inline"]


def test_an_elastic_script_is_a_training_with_its_bounds() -> None:
    training = script_objects(ScriptJob("j", "a.py", nodes=2, elastic=(1, 4)), b"")[1]
    assert training["spec"]["elasticPolicy"] == {"rdzvBackend": "torchyard", "minReplicas": 1, "maxReplicas": 4}
    assert training["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    assert "Master" not in training["spec"]["pytorchReplicaSpecs"]


def test_a_module_that_is_missing_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(YardError, match="there is no module trian in"):
        script_manifest(ScriptJob("", "trian:main"))


def test_a_function_runs_with_typed_arguments(plane: Yard, project: Path) -> None:
    code, output = run(plane, project, "train:main", "--name", "function", "--", "a", "--lr", "0.25", "--name=y")
    assert code == 0, output
    assert "called ('a',) 0.5 y" in output


def test_a_large_folder_runs_and_runs_again(plane: Yard, project: Path) -> None:
    (project / "weights.bin").write_bytes(os.urandom(2_500_000))
    (project / "train.py").write_text("import os; print('size', os.path.getsize('weights.bin'))\n")
    code, output = run(plane, project, "train.py", "--name", "large")
    assert code == 0, output
    assert "size 2500000" in output
    code, output = call(plane, "rerun", "large", "--name", "large-2")
    assert code == 0, output
    assert "size 2500000" in output
    maps = plane.server().admin.get("/api/v1/namespaces/default/configmaps").json["items"]
    parts = [item for item in maps if item["metadata"]["name"].startswith("large-2-workspace")]
    assert len(parts) == 3
    assert all(part["metadata"]["ownerReferences"][0]["name"] == "large-2" for part in parts)


def test_packages_are_installed_once_for_each_list(plane: Yard, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(project, version="1.0")
    (project / "requirements.txt").write_text("./tinypackage-1.0-py3-none-any.whl\n")
    (project / "train.py").write_text("import tinypackage; print('version', tinypackage.VERSION)\n")
    code, output = run(plane, project, "train.py", "--name", "packages")
    assert code == 0, output
    assert "installing tinypackage" in output
    assert "version 1.0" in output
    code, output = run(plane, project, "train.py", "--name", "packages-2")
    assert code == 0, output
    assert "installing" not in output
    assert "version 1.0" in output
    code, output = run(plane, project, "train.py", "--name", "packages-3", "--no-deps")
    assert code == 1, output
    assert "No module named 'tinypackage'" in output


def test_packages_that_cannot_be_installed_are_an_error(plane: Yard, project: Path) -> None:
    (project / "requirements.txt").write_text("./missing-1.0-py3-none-any.whl\n")
    code, output = run(plane, project, "train.py", "--name", "unresolved")
    assert code == 1
    assert "the packages of the script cannot be installed" in output
    assert "code: InstallFailed" in output
    for option in ("--dry-run", "--diff"):  # they name the packages and install nothing
        code, output = run(plane, project, "train.py", "--name", "unresolved", option)
        assert code == 0, output
        assert "packages that a run would install: ./missing-1.0-py3-none-any.whl" in output


@pytest.mark.parametrize("text", ["\u00b2:4", "1:" + "9" * 5000, "4:1", "0:1", "1"])
def test_the_bounds_of_an_elastic_training_are_numbers(text: str) -> None:
    with pytest.raises(YardError, match="it is not MIN:MAX"):
        _parse_elastic(text)
