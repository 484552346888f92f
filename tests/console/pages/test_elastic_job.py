"""The Elastic tab of a job that really trains: it loses a worker, and gets two more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.console.pages.jobs import PYTORCHJOBS
from tests.node.support import need_network
from tests.support.kubernetes import ROOT, Server
from tests.support.training import interpreter
from tests.support.yard import Yard

pytestmark = pytest.mark.timeout(600)
PROGRAMS = ROOT / "tests" / "elastic" / "programs"
PATIENCE = 240_000  # milliseconds, for a world that is formed on a busy machine
LONG = 12  # epochs of 19 steps


@pytest.fixture(scope="module")
def training_plane(driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A plane whose pods find torch."""
    need_network()
    with Yard(tmp_path_factory.mktemp("plane"), node=True, flags=("--python", interpreter())) as server:
        yield server


def elastic_job(name: str, directory: Path) -> dict[str, Any]:
    """It goes slowly, a step in half a second, until the file `go` is in the directory."""
    mounted = {"/src": ROOT / "src", "/programs": PROGRAMS, "/share": directory}
    flags = ("--hold", "/share/go", "--hold-pause", "0.5", "--epochs", str(LONG), "--checkpoints", "/share/checkpoints")
    container = {
        "name": "pytorch",
        "image": "pytorch/pytorch",
        "command": ["python", "/programs/mlp.py", *flags],
        "env": [{"name": "PYTHONPATH", "value": "/src"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": path[1:], "mountPath": path} for path in mounted],
    }
    volumes = [{"name": path[1:], "hostPath": {"path": str(source)}} for path, source in mounted.items()]
    worker = {
        "replicas": 2,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"containers": [container], "volumes": volumes}},
    }
    spec = {
        "elasticPolicy": {"rdzvBackend": "torchyard", "minReplicas": 1, "maxReplicas": 4},
        "pytorchReplicaSpecs": {"Worker": worker},
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def test_a_real_elastic_job_shows_its_workers_recoveries_records_and_checkpoints(
    chromium: Any, training_plane: Server, tmp_path: Path
) -> None:
    admin = training_plane.admin
    assert admin.post(PYTORCHJOBS, elastic_job("elastic", tmp_path)).status == 201
    with run_console(training_plane.kubeconfig, tmp_path) as link:
        console = Console(link.partition("#")[0], sign_in(chromium, link))
        page = console.window()
        page.set_default_timeout(PATIENCE)
        console.go(page, "/job/default/pytorchjobs.kubeflow.org/elastic")
        page.locator(".tag", has_text="elastic 1–4").wait_for()
        page.locator("nav.tabs a", has_text="Elastic").click()
        world = page.locator("section", has_text="Changes of the world").locator("tbody tr")
        first = world.filter(has_text=re.compile("2 workers from step 0"))
        first.locator("text=form the group").wait_for()

        killed = admin.delete("/api/v1/namespaces/default/pods/elastic-worker-1", {"gracePeriodSeconds": 0})
        assert killed.status == 200
        lost = world.filter(has_text=re.compile(r"1 workers from step \d+"))
        lost.first.wait_for()
        phases = lost.first.locator("td").nth(4)
        phases.locator("text=detect").wait_for()
        page.locator("text=1 worker lost").wait_for()

        patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}
        assert admin.patch(f"{PYTORCHJOBS}/elastic", patch).status == 200
        world.filter(has_text=re.compile(r"3 workers from step \d+")).first.wait_for()
        figure = page.locator("figure", has_text="Workers")
        assert re.search(r"\b3\b", figure.locator("figcaption").inner_text())

        (tmp_path / "go").touch()
        page.locator(".page-head .state", has_text="Succeeded").wait_for()
        page.locator("section", has_text="Checkpoints").locator("tbody tr", has_text="is durable").first.wait_for()
        summary = page.locator("section", has_text="Workers").locator("p.muted")
        page.locator("text=/[1-9][0-9,]* records committed/").wait_for()
        assert re.search(r"[3-9] worlds|\d\d worlds", summary.first.inner_text()), summary.first.inner_text()
        console.close()
        assert console.errors == []
