"""What `yard doctor` reports about this machine."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import sys

from torchyard.api.errors import YardError
from torchyard.node.runtime.machine_features import detect
from torchyard.yard.python_choice import find_chosen
from torchyard.yard.settings import PlaneSettings


def diagnose_machine() -> list[tuple[str, bool, str]]:
    """(check, whether it passed, message) for each check."""
    return [
        ("python", sys.version_info >= (3, 11), f"{platform.python_version()} at {sys.executable}"),
        ("sqlite", True, sqlite3.sqlite_version),
        _kubectl(),
        _training(),
        *detect().lines(),
    ]


def _kubectl() -> tuple[str, bool, str]:
    path = shutil.which("kubectl")
    return "kubectl", path is not None, path or "not in PATH; the yard command and the SDKs do not need it"


def _training() -> tuple[str, bool, str]:
    """The interpreter of mapped images, which needs torch."""
    try:
        interpreter = find_chosen(PlaneSettings())
    except YardError as error:
        return "training environment", False, str(error)
    torch = (
        "with torch"
        if interpreter.has_torch
        else "without torch: run `pip install torch` there, or choose another interpreter: yard up --python"
    )
    return (
        "training environment",
        interpreter.has_torch,
        f"Python {interpreter.version} at {interpreter.executable}, {torch}",
    )
