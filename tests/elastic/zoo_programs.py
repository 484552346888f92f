"""The programs of `zoo.py` and `zoo_unusual.py` by name, and the models with which they end undisturbed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.elastic.forked_workers import ForkServer

PROGRAMS = Path(__file__).parent / "programs"


def programs(path: Path) -> dict[str, Path]:
    """Return the names of the programs in a file."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: path
        for node in functions
        if any(getattr(name, "id", "") == "program" for name in node.decorator_list)
    }


USUAL, UNUSUAL = programs(PROGRAMS / "zoo.py"), programs(PROGRAMS / "zoo_unusual.py")
ALL = USUAL | UNUSUAL
TOLERANCE = {
    "fast_mode": 1e-4,
    "fast_mode_checkpointed_layer": 1e-4,
    "buffers_that_are_assigned_in_fast_mode": 1e-4,
    "own_loop_in_fast_mode": 1e-4,
}
"""Programs whose last bits may depend on the number of workers, and how much the sum of their parameters may differ."""


def program(name: str) -> list[str]:
    """Return the arguments of Python for a program."""
    return [str(ALL[name]), name]


class Undisturbed:
    """The outputs of programs that trained alone."""

    def __init__(self, fork_server: ForkServer, folder: Path) -> None:
        self._fork_server = fork_server
        self._folder = folder

    def __call__(self, name: str) -> str:
        path = self._folder / name
        if not path.exists():
            self._fork_server.wait(self._fork_server.fork(program(name), {"TORCHYARD_ELASTIC_COORDINATOR": ""}, path))
        return path.read_text()


def digest_of(output: str) -> str:
    digests = re.findall(r"digest (\w+)", output)
    assert digests, output
    assert len(set(digests)) == 1, f"workers disagree: {digests}"
    return str(digests[0])


def check_model(name: str, output: str, undisturbed: str, story: object) -> None:
    """The model of a disturbed job is that of the program alone: the same bits, or within the stated tolerance."""
    if name in TOLERANCE:
        sums = [float(value) for value in re.findall(r"sum (\S+)", output + undisturbed)]
        assert max(sums) - min(sums) <= TOLERANCE[name], (story, sums)
    else:
        assert digest_of(output) == digest_of(undisturbed), story
