"""Completion of shells: commands, options, and the names of jobs on the cluster."""

from __future__ import annotations

import subprocess

import pytest
from tests.cli.test_jobs import BATCH, batch_job
from tests.support.yard import Yard, _command, _environment


def complete(shell: str, line: str) -> str:
    """What the shell's completion script asks the command for."""
    words = line.split(" ")
    variables = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    return subprocess.run(
        _command(),
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            **_environment(),
            **variables,
            "_YARD_COMPLETE": f"complete_{shell}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_of_jobs_are_completed(plane: Yard, shell: str) -> None:
    path = f"{BATCH}/completed-one"
    api = plane.server().admin
    if api.get(path).status == 404:
        assert api.post(BATCH, batch_job("completed-one", "true")).status == 201
    output = complete(shell, f"yard logs --kubeconfig {plane.kubeconfig} completed-")
    assert "completed-one" in output
    assert "completed-one" not in complete(shell, f"yard logs --kubeconfig {plane.kubeconfig} other-")


def test_without_a_cluster_there_are_no_names() -> None:
    assert complete("bash", "yard logs x").strip() == ""


def test_commands_are_completed() -> None:
    assert {"rerun", "resume"} <= set(complete("bash", "yard re").split())
