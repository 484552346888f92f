"""Runs tests once more as an ordinary user, when root runs them: with a Python that such a user may execute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

USER = 65534  # nobody


def rerun(directory: Path, *tests: str, training: str) -> None:
    """Run the named tests in a child of another user. `directory` is a place for it; `training` a Python with torch."""
    if os.geteuid() != 0:
        pytest.skip("this whole run is an ordinary user's")
    if not _can("test", "-r", str(ROOT / "pyproject.toml")):
        pytest.skip(f"an ordinary user may not read {ROOT}")
    python = _environment(directory / "ours", Path(sysconfig.get_path("purelib")))
    command_line = [training, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site_packages = subprocess.run(command_line, capture_output=True, text=True, check=True).stdout.strip()
    training_python = _environment(directory / "theirs", Path(site_packages))
    user_directory = directory / "home"
    user_directory.mkdir()
    os.chown(user_directory, USER, USER)
    settings = {
        "HOME": user_directory,
        "TMPDIR": user_directory,
        "TORCHYARD_TRAIN_PYTHON": training_python,
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
    }
    variables = [f"{key}={value}" for key, value in settings.items()]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--confcutdir", ROOT, *tests]
    result = subprocess.run(
        _as_user(*variables, *map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def _as_user(*command: str) -> list[str]:
    # through env: setpriv itself still has the powers of root when it looks for the program
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--", "env", *command]


def _can(*command: str) -> bool:
    try:
        return subprocess.run(_as_user(*command), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _environment(directory: Path, packages: Path) -> Path:
    """An environment with these packages, and the interpreter in it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bases = [str(Path(sys.executable).resolve()), f"/usr/bin/{version}"]
    base = next((base for base in bases if _can(base, "-c", "")), None)
    if base is None:
        pytest.skip(f"an ordinary user may run none of {', '.join(bases)}")
    subprocess.run([base, "-m", "venv", "--without-pip", directory], check=True)
    goal = directory / "lib" / version / "site-packages"
    shutil.rmtree(goal)
    shutil.copytree(packages, goal, copy_function=_link)
    return directory / "bin" / "python"


def _link(source: str, goal: str) -> None:
    """As fast as can be, and a copy where that is all there is."""
    try:
        os.link(source, goal)
    except OSError:
        shutil.copy2(source, goal)
