"""The real kubeflow-training SDK, unmodified, against a plane that runs its jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.clients.test_libraries import PROGRAMS, environment, interpreter
from tests.node.support import need_network
from tests.support import training
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]


def plane(directory: pytest.TempPathFactory, *flags: str) -> Iterator[Server]:
    need_network()
    made = Yard(directory.mktemp("sdk"), controllers="*", flags=("--node", *flags))
    try:
        yield made.start()
    finally:
        made.stop()
        yard("down", state=made.state, timeout=120)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory)


@pytest.fixture
def server_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory, "--python", training.interpreter())


def steps(server: Server, what: str) -> list[str]:
    """The words that the program printed on its way."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    eventually(lambda: server.admin.get(account).status == 200, "the default service account")
    done = subprocess.run(
        [interpreter("kubeflow-training"), PROGRAMS / "with_kubeflow.py", "default", what],
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"after {done.stdout[-500:]}:\n{done.stderr[-3000:]}"
    return [line for line in done.stdout.splitlines() if line.isalpha()]


def test_e5_a_job_is_made_from_an_image_followed_listed_changed_and_deleted(server: Server) -> None:
    assert steps(server, "image") == ["create", "wait", "logs", "list", "update", "delete", "refuse"]


@pytest.mark.train
def test_e1_to_e4_and_e7_jobs_train(server_with_torch: Server) -> None:
    """A whole job as the notebook makes it, a gang that waits, three managers, a function on three workers."""
    assert steps(server_with_torch, "whole") == ["create", "wait", "logs", "delete"]
    assert steps(server_with_torch, "gang") == ["wait", "update", "succeed"]
    assert steps(server_with_torch, "managers") == ["refuse", "two"]
    assert steps(server_with_torch, "function") == ["create", "wait", "logs", "delete"]
