"""The real kubeflow-training SDK, unmodified, against a plane that runs its jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.clients.test_libraries import PROGRAMS, environment, interpreter
from tests.node.support import need_network
from tests.support import training
from tests.support.accounts import wait_for_account
from tests.support.kubernetes import Server
from tests.support.yard import Yard, yard

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


def plane(directory: pytest.TempPathFactory, *flags: str) -> Iterator[Server]:
    need_network()
    running = Yard(directory.mktemp("sdk"), controllers="*", flags=("--node", *flags))
    try:
        yield running.start()
    finally:
        running.stop()
        yard("down", state=running.state, timeout=120)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory)


@pytest.fixture
def server_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory, "--python", training.interpreter())


def steps(server: Server, scenario: str) -> list[str]:
    """The steps that the program printed."""
    wait_for_account(server.admin)
    completed = subprocess.run(
        [interpreter("kubeflow-training"), PROGRAMS / "with_kubeflow.py", "default", scenario],
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert completed.returncode == 0, f"after {completed.stdout[-500:]}:\n{completed.stderr[-3000:]}"
    return [line for line in completed.stdout.splitlines() if line.isalpha()]


@pytest.mark.row("E5")
def test_a_job_from_an_image_is_created_followed_listed_updated_and_deleted(server: Server) -> None:
    assert steps(server, "image") == ["create", "wait", "logs", "list", "update", "delete", "refuse"]


@pytest.mark.train
@pytest.mark.row("E1", "E2", "E3", "E4", "E7")
def test_notebook_function_and_gang_jobs_train(server_with_torch: Server) -> None:
    """A job as in the notebook, a gang that waits, three managers, and a function on three workers."""
    assert steps(server_with_torch, "whole") == ["create", "wait", "logs", "delete"]
    assert steps(server_with_torch, "gang") == ["wait", "update", "succeed"]
    assert steps(server_with_torch, "managers") == ["refuse", "two"]
    assert steps(server_with_torch, "function") == ["create", "wait", "logs", "delete"]
