"""Runs tests once more as an ordinary user, when root runs them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT
from tests.support.ordinary_user import NOBODY, as_user, can, python_environment


def rerun(directory: Path, *tests: str, training: str) -> None:
    """Run the named tests in a child of another user. `directory` is a place for it; `training` a Python with torch."""
    if os.geteuid() != 0:
        pytest.skip("this whole run is an ordinary user's")
    if not can("test", "-r", str(ROOT / "pyproject.toml")):
        pytest.skip(f"an ordinary user may not read {ROOT}")
    python = python_environment(directory / "ours", Path(sysconfig.get_path("purelib")))
    command_line = [training, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site_packages = subprocess.run(command_line, capture_output=True, text=True, check=True).stdout.strip()
    training_python = python_environment(directory / "theirs", Path(site_packages))
    user_directory = directory / "home"
    user_directory.mkdir()
    os.chown(user_directory, NOBODY, NOBODY)
    settings = {
        "HOME": user_directory,
        "TMPDIR": user_directory,
        "TORCHYARD_TRAIN_PYTHON": training_python,
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
    }
    variables = [f"{key}={value}" for key, value in settings.items()]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--confcutdir", ROOT, *tests]
    result = subprocess.run(
        as_user(*variables, *map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
