"""Commands for jobs and queues with a named context that is not the current one: a real API server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.kubernetes import Server
from tests.support.operator import PODS, Installed, running
from tests.support.pytorchjobs import job

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.queue.crd import definitions
from torchyard.operator.install import DEFINITIONS

pytestmark = pytest.mark.cluster
TIMEOUT = 120


@pytest.fixture
def elsewhere(kube: Server, tmp_path: Path) -> list[str]:
    """The options for the real server, with a kubeconfig whose current context is unreachable."""
    config: Object = yaml.safe_load(kube.kubeconfig.read_text())
    config["clusters"].append({"name": "unreachable", "cluster": {"server": "https://127.0.0.1:9"}})
    config["contexts"].append({"name": "nowhere", "context": {"cluster": "unreachable", "user": "test"}})
    config["current-context"] = "nowhere"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return ["--kubeconfig", str(path), "--context", "test"]


async def yard(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torchyard.cli", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment
    )


@pytest.mark.parametrize(("phase", "code", "expected"), [("Succeeded", 0, "Succeeded"), ("Failed", 1, "Failed")])
async def test_yard_run_follows_a_job_in_another_context(
    installed: Installed, elsewhere: list[str], tmp_path: Path, *, phase: str, code: int, expected: str
) -> None:
    namespace = await installed.namespace(f"run-{phase.lower()}")
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump({**job(worker=None, policy="Never"), "metadata": {"name": "train"}}))
    async with running(installed):
        following = asyncio.create_task(yard("run", str(manifest), "-n", namespace, *elsewhere))
        (pod,) = await installed.pods(namespace, 1)
        patch = {"status": {"phase": phase}}
        await installed.admin.patch(PODS, pod["metadata"]["name"], patch, namespace, subresource="status")
        done = await following
    assert done.returncode == code, done.stdout + done.stderr
    assert f"pytorchjob.kubeflow.org/train {expected}" in done.stdout + done.stderr


async def test_yard_queue_reads_the_queues_of_another_context(installed: Installed, elsewhere: list[str]) -> None:
    for definition in definitions():
        try:
            await installed.admin.create(DEFINITIONS, definition)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise

        async def established(name: str = definition["metadata"]["name"]) -> bool:
            return has_true_condition(await installed.admin.get(DEFINITIONS, name), "Established")

        await installed.until(established)
    done = await yard("queue", *elsewhere, "list", "-n", "nobodys", "-o", "json")
    assert done.returncode == 0 and yaml.safe_load(done.stdout) == [], done.stderr


async def test_yard_install_uses_another_context(installed: Installed, elsewhere: list[str]) -> None:
    done = await yard("install", "--crds-only", *elsewhere)
    assert done.returncode == 0, done.stderr
    again = await yard("install", "--crds-only", *elsewhere)
    lines = again.stdout.splitlines()
    assert "customresourcedefinition/pytorchjobs.kubeflow.org unchanged" in lines
    assert all(line.startswith("customresourcedefinition/") and line.endswith(" unchanged") for line in lines)


async def test_an_unreachable_current_context_is_reported(elsewhere: list[str]) -> None:
    kubeconfig = elsewhere[:2]
    for words in (("doctor",), ("install",), ("uninstall",), ("queue", *kubeconfig, "list")):
        done = await yard(*words, *([] if words[0] == "queue" else kubeconfig))
        assert done.returncode == 1 and "https://127.0.0.1:9 does not respond" in done.stderr, (words, done.stderr)
