"""The agent of one machine and the limits of a run, without training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.elastic.agent.agent import REPLACEMENT_DELAY, describe_exit, is_exiting, replacement_delay
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.run import RunOptions

RUN = ("python", "train.py")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/PID/stat exists only on Linux")
def test_an_exiting_process_is_detected_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not is_exiting(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie until its exit code is read
        assert is_exiting(process.pid)
    assert not is_exiting(process.pid), "a reaped process is not exiting"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RunOptions(RUN, Path(), workers=3, multiple_of=2), "3 workers is not a multiple of 2"),
        (RunOptions(RUN, Path(), workers=2, multiple_of=0), "2 workers is not a multiple of 0"),
        (RunOptions(RUN, Path(), workers=1, min_workers=2), "not in ascending order"),
        (RunOptions(RUN, Path(), workers=5, max_workers=4), "not in ascending order"),
        (RunOptions(RUN, Path(), workers=0), "not in ascending order"),
    ],
)
def test_contradictory_world_limits_are_refused_with_a_hint(options: RunOptions, message: str) -> None:
    with pytest.raises(ElasticError, match=message) as caught:
        options.limits()
    assert caught.value.code == "BadLimits"
    assert caught.value.hint


@pytest.mark.parametrize(("code", "description"), [(0, "exited with code 0"), (-9, "was ended by SIGKILL")])
def test_an_exit_code_is_described_in_words(code: int, description: str) -> None:
    assert describe_exit(code) == description


def test_a_missing_torch_is_named_in_one_line_before_the_output_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is hidden')")
    (tmp_path / "program.py").write_text("import torch")
    command = [sys.executable, "-m", "torchyard.elastic", "run", "-n", "1", "--dir", str(tmp_path / "job"), "--"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, sys.executable, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == f"torch cannot be imported: interpreter={sys.executable} error=torch is hidden"
    assert lines[1].startswith("failed: 3 workers in a row failed right after their start")


@pytest.mark.parametrize("how", ["run", "pod"])
@pytest.mark.parametrize(
    ("name", "hint"), [("train.py", "put the Python that has torch before it"), ("trian", "is there")]
)
def test_a_command_that_cannot_be_started_is_one_error_with_a_hint(
    how: str, name: str, hint: str, tmp_path: Path
) -> None:
    program = tmp_path / name
    if name.endswith(".py"):
        program.write_text("import torch")
    place = ["-n", "1", "--dir", str(tmp_path / "job")] if how == "run" else []
    command = [sys.executable, "-m", "torchyard.elastic", how, *place, "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    error, line = done.stderr.splitlines()
    assert error.startswith(f"error: the program {program} cannot be started: ")
    assert line.startswith(f"hint: {hint}")


def test_a_lost_worker_is_replaced_at_once_if_a_core_is_free() -> None:
    assert replacement_delay(3, cores=4) == 0
    assert replacement_delay(3, cores=3) == REPLACEMENT_DELAY
