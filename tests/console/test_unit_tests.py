"""The unit tests of the pages: merging logs, reading metrics, sorting jobs, writing YAML."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tests.support.kubernetes import ROOT


def test_the_pages_pass_their_unit_tests_and_type_checks() -> None:
    npm = shutil.which("npm")
    if npm is None or not (ROOT / "console/node_modules/.ready").exists():
        pytest.skip("npm or the packages of the console are missing: run `make console` (Node.js 20)")
    for script in ("check", "test"):
        result = subprocess.run(
            [npm, "run", "--silent", script], cwd=ROOT / "console", capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_first_screen_is_within_its_budget() -> None:
    """`make test` goes on without the pages where they cannot be built, so the budget is checked here too."""
    node = shutil.which("node")
    if node is None or not (ROOT / "src/torchyard/console/static/index.html").is_file():
        pytest.skip("Node.js or the built pages are missing: run `make console` (Node.js 20)")
    result = subprocess.run([node, str(ROOT / "console/build/size.mjs")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "first screen:" in result.stdout
