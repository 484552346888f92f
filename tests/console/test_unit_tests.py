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
