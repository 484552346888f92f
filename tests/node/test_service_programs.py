"""Programs from PyPI as Deployments with Services: TensorBoard, a Jupyter server, a webhook written with Flask."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.access.webhook_server import certificate
from tests.node import support
from tests.node.conftest import RunningNode, running_node
from tests.node.test_service_webhooks import VALIDATING_WEBHOOKS, configuration
from tests.support import kubectl as kubectls
from tests.support.effort import FULL
from tests.support.process import free_port

from torchyard.api.errors import StatusError
from torchyard.api.gvr import DEPLOYMENTS, PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import PYTORCHJOBS

pytestmark = [
    pytest.mark.skipif(not FULL, reason="installs from PyPI; TORCHYARD_TESTS=full"),
    pytest.mark.timeout(900),
]

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

GUARD = """
import ssl
from flask import Flask, request
app = Flask("guard")
@app.post("/check")
def check():
    review = request.get_json()["request"]
    replicas = review["object"]["spec"]["pytorchReplicaSpecs"]["Worker"].get("replicas", 1)
    answer = {"uid": review["uid"], "allowed": replicas <= 4, "status": {"message": f"{replicas} workers are too many"}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
open("/tmp/chain.pem", "w").write(CHAIN)
app.run("0.0.0.0", 8443, ssl_context=("/tmp/chain.pem", "/tmp/chain.pem"))
"""


def interpreter(directory: Path, *packages: str) -> str:
    """A Python with the programs; the test is skipped where PyPI cannot be reached."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = str(directory / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", *packages]
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


async def deploy(node: RunningNode, name: str, container: Object) -> None:
    labels = {"app": name}
    spec = {"containers": [{"name": "main", "image": "python", **container}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    await node.client.create(DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", **deployment}, "default")


async def expose(node: RunningNode, name: str, **spec: Any) -> Object:
    service = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, **spec}}
    return await node.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **service}, "default")


async def kill_pods(node: RunningNode, name: str) -> None:
    for pod in (await node.client.list(PODS, "default", labels=f"app={name}")).items:
        await node.client.delete(PODS, pod["metadata"]["name"], "default")
        await node.gone(pod["metadata"]["name"], seconds=60)


@contextlib.asynccontextmanager
async def forwarded(kubeconfig: Path, service: str) -> AsyncIterator[int]:
    """The local port of a `kubectl port-forward` to a Service."""
    kubectl = kubectls.need().using(kubeconfig, kubeconfig.parent)
    port = free_port()
    command = kubectl.command("port-forward", f"service/{service}", f"{port}:80")
    process = await asyncio.create_subprocess_exec(*command, env=kubectl.variables(), stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


async def test_programs_from_pypi_are_reached_before_and_after_changes(tmp_path: Path) -> None:
    support.need_network()
    packages = ("tensorboard", "jupyter_server", "setuptools<81")
    python = await asyncio.to_thread(interpreter, tmp_path / "python", *packages)
    async with running_node(tmp_path / "state", python=python) as node:
        ports: dict[str, int] = {}
        for name, (arguments, path) in PROGRAMS.items():
            probe = {"httpGet": {"path": path, "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 10}
            home = [{"name": "HOME", "value": "/tmp"}]
            await deploy(node, name, {"command": ["python3", *arguments], "env": home, "readinessProbe": probe})
            created = await expose(node, name, type="NodePort", ports=[{"port": 80, "targetPort": 8000}])
            ports[name] = created["spec"]["ports"][0]["nodePort"]
        for name, port in ports.items():
            path = PROGRAMS[name][1]
            await reach(port, path)
            await kill_pods(node, name)
            await reach(port, path)
            async with forwarded(tmp_path / "state" / "kubeconfig", name) as local:
                await reach(local, path)
            changed = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
            await node.client.patch(DEPLOYMENTS, name, changed, "default")
            for _ in range(600):
                assert await asyncio.to_thread(status, port, path) == 200, "a request failed during the update"
                rolled = (await node.client.get(DEPLOYMENTS, name, "default"))["status"]
                if rolled.get("observedGeneration") == 2 and rolled.get("updatedReplicas") == rolled["replicas"] == 1:
                    break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError("the update did not end")
            async with forwarded(tmp_path / "state" / "kubeconfig", name) as local:
                await reach(local, path)


async def create_job(node: RunningNode, name: str, workers: int) -> str:
    """Create a PyTorchJob; returns why it was refused."""
    containers = [{"name": "pytorch", "image": "python", "command": ["python3", "--version"]}]
    worker = {"replicas": workers, "template": {"spec": {"containers": containers}}}
    job = {"metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    try:
        await node.client.create(PYTORCHJOBS, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **job}, "default")
    except StatusError as refused:
        return refused.message
    return ""


async def refused(node: RunningNode, workers: int) -> None:
    """Wait until the webhook answers, and see it refuse a job."""
    for _ in range(600):
        message = await create_job(node, f"large-{workers}", workers)
        if "denied" in message:
            break
        assert "failed calling webhook" in message, message or "the job was accepted"
        await asyncio.sleep(0.1)
    assert message == f'admission webhook "hook.example.com" denied the request: {workers} workers are too many'


async def test_a_webhook_written_with_flask_guards_pytorchjobs(tmp_path: Path) -> None:
    support.need_network()
    python = await asyncio.to_thread(interpreter, tmp_path / "python", "flask")
    chain, ca = await asyncio.to_thread(certificate, tmp_path)
    guard = GUARD.replace("CHAIN", repr(chain.read_text()))
    async with running_node(tmp_path / "state", python=python) as node:
        probe = {"tcpSocket": {"port": 8443}, "periodSeconds": 1}
        await deploy(node, "hook", {"command": ["python3", "-c", guard], "readinessProbe": probe})
        await expose(node, "hook", ports=[{"port": 443, "targetPort": 8443}])
        webhook = configuration("hook", ca=ca)
        rule = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "resources": ["pytorchjobs"]}
        webhook["webhooks"][0]["rules"] = [{"operations": ["CREATE", "UPDATE"], **rule}]
        await node.client.create(VALIDATING_WEBHOOKS, webhook)
        await refused(node, 8)
        assert await create_job(node, "small", 2) == ""
        await kill_pods(node, "hook")
        await refused(node, 9)
