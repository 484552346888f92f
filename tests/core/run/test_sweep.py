"""The Indexed Job of a sweep."""

from __future__ import annotations

import subprocess

import pytest

from torchyard.api.errors import YardError
from torchyard.core.run.script_command import split_command
from torchyard.core.run.script_job import ScriptJob
from torchyard.core.run.sweep import combinations_of, grid, sweep_objects


def test_a_grid_has_every_combination() -> None:
    assert grid(["lr=0.1,0.01", "bs=1,2"]) == [
        {"lr": "0.1", "bs": "1"},
        {"lr": "0.1", "bs": "2"},
        {"lr": "0.01", "bs": "1"},
        {"lr": "0.01", "bs": "2"},
    ]
    assert grid(["lr=1", "bs=2", "lr=3,1"]) == [{"lr": "1", "bs": "2"}, {"lr": "3", "bs": "2"}]
    for wrong in ("lr", "=1", "lr="):
        with pytest.raises(YardError, match="it is not NAME=VALUE"):
            grid([wrong])
    with pytest.raises(YardError, match="1001 combinations"):
        grid([f"x={','.join(map(str, range(1001)))}"])


def test_the_launcher_of_several_processes_learns_their_number() -> None:
    job = sweep_objects(ScriptJob("s", "train.py", processes=2, env={"A": "1"}), b"", [{"lr": "1"}], 1)[1]
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {entry["name"]: entry["value"] for entry in variables} == {
        "A": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_STANDALONE": "1",
    }


def test_each_index_gets_its_options() -> None:
    combinations = [{"lr": "0.1"}, {"lr": "it's; $HOME"}]
    job = sweep_objects(ScriptJob("s", "train.py", ("--epochs", "1")), b"", combinations, 1)[1]
    assert job["spec"]["completions"] == 2
    assert job["spec"]["parallelism"] == 1
    assert combinations_of(job) == combinations
    unpack, program = split_command(job["spec"]["template"]["spec"]["containers"][0]["command"])
    script, words = unpack[-2], [unpack[-1], *program]
    choice = script[script.index("case ") :].replace('exec "$@"', 'printf "%s|" "$@"')
    for index, combination in enumerate(combinations):
        output = subprocess.run(
            ["sh", "-c", choice, *words],
            env={"JOB_COMPLETION_INDEX": str(index), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert output.split("|")[:-1] == ["python", "-u", "train.py", "--epochs", "1", "--lr", combination["lr"]]
