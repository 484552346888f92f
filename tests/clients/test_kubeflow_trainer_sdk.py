"""The real kubeflow SDK 0.5, unmodified, against a plane that runs its TrainJobs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.test_kubeflow_sdk import plane
from tests.clients.test_libraries import PROGRAMS, interpreter
from tests.support import training
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.clients, pytest.mark.train, pytest.mark.timeout(900)]
# What the program prints, one word for each row of what the SDK does.
STEPS = [
    *("version", "runtimes", "train", "running", "logs", "complete", "list", "events", "delete", "refuse"),
    *("suspend", "resume"),
]
_RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from plane(tmp_path_factory, "--python", training.interpreter())


def test_a_function_is_trained_followed_listed_and_deleted(server: Server) -> None:
    eventually(lambda: server.admin.get(_RUNTIME).status == 200, "the runtime torch-distributed")
    assert steps(server.kubeconfig, "default") == STEPS


def steps(kubeconfig: Path, namespace: str) -> list[str]:
    """Run the program; the words that it printed."""
    completed = subprocess.run(
        [interpreter("kubeflow"), PROGRAMS / "with_kubeflow_trainer.py", namespace],
        env={"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 0, f"after {completed.stdout[-500:]}:\n{completed.stderr[-3000:]}"
    return [line for line in completed.stdout.splitlines() if line.isalpha()]
