"""What the agent of one machine sees and settles, without training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.elastic.agent.agent import describe, exiting
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.run import RunOptions

RUN = ("python", "train.py")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's mark is Linux'")
def test_a_process_that_is_ending_is_seen_before_it_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not exiting(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays as it is until somebody asks for its code
        assert exiting(process.pid)
    assert not exiting(process.pid), "a process that is gone is another matter"


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (RunOptions(RUN, Path(), workers=3, multiple_of=2), "3 workers is not a multiple of 2"),
        (RunOptions(RUN, Path(), workers=2, multiple_of=0), "2 workers is not a multiple of 0"),
        (RunOptions(RUN, Path(), workers=1, least=2), "not in order"),
        (RunOptions(RUN, Path(), workers=5, most=4), "not in order"),
        (RunOptions(RUN, Path(), workers=0), "not in order"),
    ],
)
def test_world_sizes_that_do_not_fit_are_refused_with_advice(settings: RunOptions, fault: str) -> None:
    with pytest.raises(ElasticError, match=fault) as caught:
        settings.limits()
    assert caught.value.code == "BadLimits"
    assert caught.value.hint


@pytest.mark.parametrize(("code", "told"), [(0, "exited with code 0"), (-9, "was ended by SIGKILL")])
def test_how_a_worker_ended_is_told_in_words(code: int, told: str) -> None:
    assert describe(code) == told
