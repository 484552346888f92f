"""The recorded walks through a day with jobs: they show every step, and the tool can record them again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support.effort import FULL
from tests.support.kubernetes import ROOT
from tools.record_walk import steps

WALKS = {"plane": "", "cluster": "demo/python:1"}


def check(text: str, image: str) -> None:
    """Every command was typed, in order, and was followed by what it must show."""
    position = 0
    for step in (step for part in steps(image) for step in part):
        position = text.index(f"$ {step.command}\n", position)
        following = text.find("\n$ ", position + 1)
        output = text[position : following if following > 0 else len(text)]
        assert re.search(step.shows, output), (step.command, output)
    assert "[the terminal is closed]" in text


@pytest.mark.parametrize("name", WALKS)
def test_the_recorded_walk_shows_every_step(name: str) -> None:
    check((ROOT / "docs" / "walks" / f"{name}.txt").read_text(), WALKS[name])


def test_the_walk_on_a_plane_can_be_recorded_again(tmp_path: Path) -> None:
    if not FULL or not shutil.which("tmux"):
        pytest.skip("a walk takes a minute and needs tmux: TORCHYARD_TESTS=full")
    need_network()
    output = tmp_path / "plane.txt"
    subprocess.run([sys.executable, str(ROOT / "tools/record_walk.py"), "--output", str(output)], check=True)
    check(output.read_text(), "")
