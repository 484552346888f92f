"""What a start imports, and what is imported only when needed: a plane starts in a second, its help at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "prometheus_client", "psutil", "torch", "numpy", "torchyard.node.agent", "torchyard.apiserver.cel")


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("torchyard.cli.main", ("cryptography", "torchyard.apiserver", "torchyard.kube", *HEAVY)),
        ("torchyard.yard.plane", HEAVY),
    ],
)
def test_optional_modules_are_not_imported_at_the_start(module: str, left_out: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*(name for name in {left_out!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
