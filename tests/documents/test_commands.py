"""The commands of the documentation, run as they stand: every ```sh block that is marked with `<!-- run -->`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import kubectl as kubectls

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, block in enumerate(BLOCK.findall(page.read_text()), 1):
            yield f"{page.name}-{number}", block


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of its own with a `yard` in its PATH; whatever a block leaves running is stopped."""
    if not kubectls.in_path():
        pytest.skip("the documentation's commands need kubectl")
    programs = tmp_path / "bin"
    programs.mkdir()
    yard = programs / "yard"
    yard.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torchyard.cli "$@"\n')
    yard.chmod(0o755)
    state = tmp_path / "state"
    yield {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(state),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    lock = state / "torchyard" / "lock"
    found = re.search(r'"pid": (\d+)', lock.read_text()) if lock.exists() else None
    if found:
        os.kill(int(found.group(1)), signal.SIGKILL)


@pytest.mark.clients
@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in blocks()])
def test_a_documented_block_of_commands_works(block: str, environment: dict[str, str], tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + block
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
