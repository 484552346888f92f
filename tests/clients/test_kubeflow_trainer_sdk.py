"""The real kubeflow SDK 0.5, unmodified, against a plane that runs its TrainJobs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.clients.test_kubeflow_sdk import plane
from tests.clients.test_libraries import PROGRAMS, environment, interpreter
from tests.support import training
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.clients, pytest.mark.train, pytest.mark.timeout(900)]
_RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory, "--python", training.interpreter())


def test_a_function_is_trained_followed_listed_and_deleted(server: Server) -> None:
    eventually(lambda: server.admin.get(_RUNTIME).status == 200, "the runtime torch-distributed")
    completed = subprocess.run(
        [interpreter("kubeflow"), PROGRAMS / "with_kubeflow_trainer.py", "default"],
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 0, f"after {completed.stdout[-500:]}:\n{completed.stderr[-3000:]}"
    steps = [line for line in completed.stdout.splitlines() if line.isalpha()]
    assert steps == ["runtimes", "train", "running", "logs", "complete", "list", "events", "delete", "refuse"]
