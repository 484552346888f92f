"""The commands of the documentation, executed as written.

A ```sh block after `<!-- run -->` runs in an empty directory. The blocks after `<!-- run torch -->` of one page are one
script that trains; it runs in a directory that looks like a checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support import training
from tests.support.kubernetes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)
TORCH_BLOCK = re.compile(r"<!-- run torch -->\n```sh\n(.*?)```", re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, block in enumerate(BLOCK.findall(page.read_text()), 1):
            yield f"{page.name}-{number}", block


def training_scripts() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if torch_blocks := TORCH_BLOCK.findall(page.read_text()):
            yield page.name, "".join(torch_blocks)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home directory with the programs in the PATH. A plane that a block leaves running is killed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectls.need().path)
    for name, module in {"yard": "torchyard.cli", "torchyard-kind": "torchyard.testing.kind"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    state = tmp_path / "state"
    yield {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(state),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    for lock in (state / "torchyard" / "lock", *state.glob("torchyard-kind/*/lock")):
        pid = re.search(r'"pid": (\d+)', lock.read_text()) if lock.exists() else None
        if pid:
            os.kill(int(pid.group(1)), signal.SIGKILL)


def run_script(script: str, directory: Path, environment: dict[str, str], *, timeout: float) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.clients
@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in blocks()])
def test_a_documented_block_of_commands_works(block: str, environment: dict[str, str], tmp_path: Path) -> None:
    if "openssl" in block and shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    run_script(block, tmp_path, environment, timeout=180)


@pytest.mark.clients
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", [pytest.param(script, id=name) for name, script in training_scripts()])
def test_the_commands_of_a_training_page_work(script: str, environment: dict[str, str], tmp_path: Path) -> None:
    need_network()
    checkout = tmp_path / "checkout"
    (checkout / ".venv-train" / "bin").mkdir(parents=True)
    python = checkout / ".venv-train" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{training.interpreter()}" "$@"\n')
    python.chmod(0o755)
    (checkout / "examples").symlink_to(ROOT / "examples")
    run_script(script, checkout, environment, timeout=840)
