"""The check of the machine's namespaces ends on machines that allow only a part of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from torchyard.node.shim import namespace_check

WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def test_the_check_ends_if_the_ids_cannot_be_mapped() -> None:
    """root without capabilities gets a user namespace whose ids it may not map."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (Debian: util-linux)")
    command = [*WITHOUT_CAPABILITIES, sys.executable, "-I", "-S", namespace_check.__file__]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "setpriv" in checked.stderr:
        pytest.skip(checked.stderr.strip())
    problems = json.loads(checked.stdout)
    assert set(problems) == set(namespace_check.STEPS)
