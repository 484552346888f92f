"""`torchyard.testing`: a plane in the test's process, its reset and its clock, and the pytest plugin."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT
from tests.support.waiting import eventually

from torchyard.api.objects import Object
from torchyard.sdk import Yard
from torchyard.testing import LocalPlane
from torchyard.testing.reset import take_snapshot

TESTS = """
import pytest
from torchyard.sdk import Yard

def config(namespace, value):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "same", "namespace": namespace},
            "data": {"value": value}}

@pytest.mark.parametrize("value", ["a", "b", "c"])
def test_every_test_starts_afresh(yard, value):
    assert yard.get("v1", "ConfigMap", "same") is None
    yard.apply(config("default", value))
    assert yard.get("v1", "ConfigMap", "same")["data"] == {"value": value}

def test_namespaces_differ(yard, yard_namespace, request):
    yard.apply(config(yard_namespace, "x"))

def test_clients_connect(yard_kubeconfig):
    with Yard(kubeconfig=yard_kubeconfig) as connection:
        assert connection.jobs() == []
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[LocalPlane]:
    with LocalPlane() as plane:
        yield plane


def batch_job(name: str, **spec: object) -> Object:
    container = {"name": "main", "image": "busybox"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def test_controllers_are_alive(plane: LocalPlane) -> None:
    plane.apply(batch_job("alive"))

    def is_active() -> bool:
        job = plane.get("batch/v1", "Job", "alive")
        return bool(job and (job.get("status") or {}).get("active") == 1)

    eventually(is_active, "the pod of the job")
    plane.reset()
    assert plane.get("batch/v1", "Job", "alive") is None


def test_a_reset_restores_what_was_changed_and_removes_namespaces(plane: LocalPlane) -> None:
    plane.create_namespace("extra")
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"a": "b"}}})
    plane.reset()
    namespace = plane.get("v1", "Namespace", "default")
    assert namespace is not None
    assert "a" not in namespace["metadata"].get("labels", {})
    eventually(lambda: plane.get("v1", "Namespace", "extra") is None, "the namespace to be gone")
    plane.create_namespace("extra")
    plane.reset()


def test_the_clock_can_be_advanced(plane: LocalPlane) -> None:
    plane.apply(batch_job("deadline", activeDeadlineSeconds=3600))

    def state() -> set[str]:
        job = plane.get("batch/v1", "Job", "deadline")
        return {condition["type"] for condition in ((job or {}).get("status") or {}).get("conditions") or ()}

    def has_started() -> bool:
        job = plane.get("batch/v1", "Job", "deadline")
        return bool(job and (job.get("status") or {}).get("startTime"))

    eventually(has_started, "the start of the job")
    began = time.monotonic()
    plane.clock.advance(3601)
    eventually(lambda: "FailureTarget" in state() or "Failed" in state(), "the deadline")
    assert time.monotonic() - began < 600
    with pytest.raises(ValueError, match="does not go back"):
        plane.clock.advance(-1)
    plane.reset()


def test_clients_use_its_kubeconfig(plane: LocalPlane) -> None:
    with Yard(kubeconfig=plane.kubeconfig) as connection:
        assert connection.jobs() == []


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_plugin_gives_each_test_a_fresh_state(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_plugin.py").write_text(TESTS)
    plugins = ["-p", "torchyard.testing.plugin", "-p", "xdist", "-n", workers]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", *plugins, "test_plugin.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_a_reset_leaves_nothing_of_controllers_that_are_at_work(plane: LocalPlane) -> None:
    plane.reset()
    store = plane._running.registry.store
    before = set(take_snapshot(store))
    for number in range(5):
        plane.apply(batch_job(f"busy-{number}", parallelism=5, completions=5))
    plane.create_namespace("busy")
    plane.reset()
    assert set(take_snapshot(store)) == before
