"""The twenty tasks of the page for coding agents, solved with the commands of the page alone, on one plane."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.node.support import need_network
from tests.support.kubernetes import ROOT
from tests.support.yard import Yard, yard

from torchyard import skills
from torchyard.cli.main import build_app
from torchyard.cli.mcp.tools import READ_TOOLS, WRITE_TOOLS

PAGE = (ROOT / "docs/agents.md").read_text()
TASKS = re.findall(r"^(\d+)\. (.*?)\n\s+```sh\n(.*?)\n\s+```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("agents"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, and the command `yard` on the path."""
    folder = tmp_path_factory.mktemp("tasks")
    files = re.search(r"<!-- files -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert files is not None
    subprocess.run(["sh", "-ec", files[1]], cwd=folder, check=True)
    command = folder / ".bin" / "yard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m torchyard.cli "$@"\n')
    command.chmod(0o755)
    return folder


def solve(plane: Yard, folder: Path, commands: str) -> None:
    path = f"{folder / '.bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(ROOT / "src")}
    for line in textwrap.dedent(commands).splitlines():
        command, _, expected = line.partition("# →")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert expected.strip() and expected.strip() in done.stdout + done.stderr, (command, done.stdout, done.stderr)


def test_every_task_is_solved(plane: Yard, folder: Path) -> None:
    assert [int(number) for number, _, _ in TASKS] == list(range(1, 21))
    for number, title, commands in TASKS:
        try:
            solve(plane, folder, " " * 4 + commands.lstrip())
        except AssertionError as error:
            raise AssertionError(f"task {number}, {title}: {error}") from error


def test_the_page_names_every_tool() -> None:
    table = PAGE[PAGE.index("| tool |") : PAGE.index("A tool that fails")]
    documented = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+_\w+)`", row)}
    assert documented == {tool.name for tool in (*READ_TOOLS, *WRITE_TOOLS)}


def test_the_skill_names_commands_that_exist() -> None:
    skill = (skills.path() / "SKILL.md").read_text()
    _, header, text = skill.split("---\n", 2)
    assert set(yaml.safe_load(header)) == {"name", "description"}
    from typer.main import get_command

    commands = get_command(build_app()).commands  # type: ignore[attr-defined]
    used = re.findall(r"`yard ([a-z-]+)([^`]*)`", text)
    assert len(used) > 20
    for verb, rest in used:
        known = {option for parameter in commands[verb].params for option in parameter.opts}
        options = {word for word in rest.partition(" -- ")[0].split() if word.startswith("-")}
        assert options <= known, (verb, options - known)
