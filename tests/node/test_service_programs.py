"""TensorBoard and a Jupyter server from PyPI as Deployments with Services; they survive their pod and an update."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.node import support
from tests.node.conftest import running_node
from tests.support.effort import FULL

from torchyard.api.gvr import DEPLOYMENTS, PODS, SERVICES

JUPYTER = (
    "-m",
    "jupyter_server",
    "--ip=0.0.0.0",
    "--port=8000",
    "--no-browser",
    "--allow-root",
    "--ServerApp.root_dir=/tmp",
)
PROGRAMS = {
    "tensorboard": (["-m", "tensorboard.main", "--logdir=/tmp", "--port=8000", "--bind_all", "--load_fast=false"], "/"),
    "jupyter": ([*JUPYTER, "--IdentityProvider.token=", "--ServerApp.allow_remote_access=True"], "/api"),
}


def interpreter(directory: Path) -> str:
    """A Python with the programs; the test is skipped where PyPI cannot be reached."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = str(directory / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "tensorboard", "jupyter_server", "setuptools<81"]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the programs cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return int(response.status)
    except (urllib.error.URLError, OSError):
        return 0


async def reach(port: int, path: str) -> None:
    for _ in range(600):
        if await asyncio.to_thread(status, port, path) == 200:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"nothing answers on port {port}")


@pytest.mark.skipif(not FULL, reason="installs from PyPI; TORCHYARD_TESTS=full")
@pytest.mark.timeout(900)
async def test_programs_from_pypi_are_reached_before_and_after_changes(tmp_path: Path) -> None:
    support.need_network()
    python = await asyncio.to_thread(interpreter, tmp_path / "python")
    async with running_node(tmp_path / "state", python=python) as node:
        ports: dict[str, int] = {}
        for name, (arguments, path) in PROGRAMS.items():
            labels = {"app": name}
            container: dict[str, Any] = {
                "name": "main",
                "image": "python",
                "command": ["python3", *arguments],
                "env": [{"name": "HOME", "value": "/tmp"}],
                "readinessProbe": {"httpGet": {"path": path, "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 10},
            }
            template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
            await node.client.create(DEPLOYMENTS, kind, "default")
            service = {"type": "NodePort", "selector": labels, "ports": [{"port": 80, "targetPort": 8000}]}
            created = await node.client.create(
                SERVICES,
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
                "default",
            )
            ports[name] = created["spec"]["ports"][0]["nodePort"]
        for name, port in ports.items():
            path = PROGRAMS[name][1]
            await reach(port, path)
            for pod in (await node.client.list(PODS, "default", labels=f"app={name}")).items:
                await node.client.delete(PODS, pod["metadata"]["name"], "default")
                await node.gone(pod["metadata"]["name"], seconds=60)
            await reach(port, path)
            changed = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
            await node.client.patch(DEPLOYMENTS, name, changed, "default")
            for _ in range(600):
                assert await asyncio.to_thread(status, port, path) == 200, "a request failed during the update"
                rolled = (await node.client.get(DEPLOYMENTS, name, "default"))["status"]
                if rolled.get("observedGeneration") == 2 and rolled.get("updatedReplicas") == rolled["replicas"] == 1:
                    break
                await asyncio.sleep(0.1)
