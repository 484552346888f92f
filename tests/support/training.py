"""A Python with torch, for tests that really train."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest
from tests.support.kubernetes import ROOT


def interpreter() -> str:
    """The one named by TORCHYARD_TRAIN_PYTHON; else that of `make train-venv`; else ours."""
    from_environment = os.environ.get("TORCHYARD_TRAIN_PYTHON", "")
    venv = ROOT / ".venv-train"
    if from_environment:
        return from_environment
    if (venv / ".ready").exists():
        return str(venv / "bin" / "python")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch here: `make train-venv` installs one, or name an interpreter with TORCHYARD_TRAIN_PYTHON")
    return sys.executable
