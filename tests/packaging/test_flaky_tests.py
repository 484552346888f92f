"""The plugin of the second test run records the tests that pass, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.kubernetes import ROOT

MODULE = """
import pytest

@pytest.fixture
def broken_at_the_end():
    yield
    raise RuntimeError("teardown")

def test_passes(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("no reason")
def test_fails_in_teardown(broken_at_the_end): pass
"""


def test_only_tests_that_pass_entirely_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    flaky = tmp_path / "build" / "flaky-tests.txt"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.flaky"]
    subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(tmp_path), "--flaky-file", str(flaky), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert flaky.read_text() == "test_module.py::test_passes\n"
