"""Runs programs as an ordinary user, when root runs the tests: with a Python that such a user may execute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534


def as_user(*command: str, uid: int = NOBODY) -> list[str]:
    """The command, run by another user. Its first words may be variables."""
    # through env: setpriv itself still has the powers of root when it looks for the program
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", "env", *command]


def can(*command: str) -> bool:
    """Whether an ordinary user may run it."""
    try:
        return subprocess.run(as_user(*command), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def python_environment(directory: Path, packages: Path) -> Path:
    """An environment with these packages, and the interpreter in it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bases = [str(Path(sys.executable).resolve()), f"/usr/bin/{version}"]
    base = next((base for base in bases if can(base, "-c", "")), None)
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
