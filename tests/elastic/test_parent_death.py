"""Processes that must not outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)}
PROGRAM = "import sys; from torchyard.elastic.parent_death import die_with_parent; die_with_parent(int(sys.argv[1]))"


def run(parent: int) -> int:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(parent)], env=ENVIRONMENT, check=False).returncode


@LINUX
def test_a_process_whose_parent_ended_before_it_asked_ends() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert run(ended.pid) == -signal.SIGKILL
    assert run(os.getpid()) == 0


@LINUX
def test_a_coordinator_whose_parent_has_ended_does_not_start(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    command = [sys.executable, "-m", "torchyard.elastic", "coordinator", "--dir", str(tmp_path)]
    done = subprocess.run([*command, "--with-parent", str(ended.pid)], env=ENVIRONMENT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
