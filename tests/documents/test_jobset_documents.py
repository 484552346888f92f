"""The commands of the page on JobSets, with a real kubectl, in the order of the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import kubectl as kubectls
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.yard.selection import KNOWN, select_controllers

pytestmark = pytest.mark.clients
PAGE = (ROOT / "docs/jobsets.md").read_text().splitlines()


def commands(program: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in PAGE if line.startswith(f"    {program} ")]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("jobsets"), controllers="*") as server:
        yield server


def test_the_commands_of_the_page_run_and_the_jobset_is_resumed(plane: Server, tmp_path: Path) -> None:
    kubectl = kubectls.need().using(plane.kubeconfig, tmp_path, "default")
    for command in commands("kubectl"):
        kubectl(*(str(ROOT / word) if word.startswith("examples/") else word for word in command))

    def conditions() -> str:
        return kubectl("get", "jobset", "training", "-o", "jsonpath={.status.conditions[*].reason}")

    eventually(lambda: conditions() == "ResumeJobs", "the resumed JobSet")
    assert kubectl("get", "jobs", "-o", "name").split() == ["job.batch/training-data-0"]  # workers depend on it
    assert "training" in kubectl("get", "service", "-o", "name")


def test_the_option_of_the_page_leaves_out_the_controller() -> None:
    ((*_, option),) = commands("yard")
    chosen = select_controllers(option.removeprefix("--controllers="), KNOWN)
    assert set(KNOWN) - chosen == {"jobset"}
