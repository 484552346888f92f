"""The wheel, as users install it: into an environment of its own, outside of the checkout."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support.effort import FULL
from tests.support.kubernetes import ROOT

SCRIPT = "import os\nprint('rank', os.environ['RANK'], flush=True)\n"


def test_uvx_and_pipx_run_the_command_by_the_name_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"][project["name"]] == project["scripts"]["yard"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not FULL:
        pytest.skip("pip builds the wheel and installs what it needs: TORCHYARD_TESTS=full")
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0 and "hatchling" in built.stderr:
        pytest.skip(f"pip cannot get hatchling: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    (path,) = directory.glob("*.whl")
    return path


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "src/torchyard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {path.removeprefix("src/") for path in listed.splitlines()} <= names


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The directory with the commands of a fresh environment."""
    environment = wheel.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    install = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode != 0 and "No matching distribution" in installed.stderr:
        pytest.skip(f"pip cannot get the dependencies: {installed.stderr.splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    return environment / "bin"


@pytest.mark.parametrize("program", ["yard", "torchyard"])
def test_a_script_runs_on_a_plane_of_the_installed_package(programs: Path, tmp_path: Path, program: str) -> None:
    need_network()
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*words: str) -> str:
        command = [str(programs / program), *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    run("up", "--detach", "--port", "0")
    try:
        assert "[master-0] rank 0" in run("run", "train.py", "--name", "installed")
        assert run("ps", "-q") == "pytorchjob.kubeflow.org/installed\n"
    finally:
        run("down")
