"""Python clients, unmodified, each in an environment of its own, against our server; with full effort against the real
one too, to prove the programs."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.accounts import wait_for_account
from tests.support.effort import FULL
from tests.support.http import Client
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually

PROGRAMS = Path(__file__).parent / "programs"
CLIENTS = {
    "kubernetes-35": "official.py",
    "kubernetes-37": "official.py",
    "kubernetes_asyncio": "asynchronous.py",
    "kr8s": "with_kr8s.py",
    "lightkube": "with_lightkube.py",
}
STEPS = ["create", "list", "watch", "patch", "apply", "delete"]


@pytest.fixture(params=["yard", "kube"] if FULL else ["yard"])
def server(request: pytest.FixtureRequest) -> Server:
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def namespace(server: Server) -> str:
    created = server.admin.post("/api/v1/namespaces", {"metadata": {"generateName": "client-"}})
    name: str = created.json["metadata"]["name"]
    wait_for_account(server.admin, name)
    return name


def interpreter(client: str) -> Path:
    """A Python with this client in it; made once, kept beside the checkout."""
    home = ROOT / ".venv-clients" / client
    pins = ROOT / "requirements" / "clients" / f"{client}.txt"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = home / "pins.txt"
        if not ready.exists() or ready.read_text() != pins.read_text():
            installed = _install(home, pins)
            if installed.returncode != 0:
                pytest.skip(f"{client} cannot be installed here: {installed.stderr.strip().splitlines()[-1]}")
            ready.write_text(pins.read_text())
    return home / "bin" / "python"


def _install(home: Path, pins: Path) -> subprocess.CompletedProcess[str]:
    """Without a pip of its own, and without compiling modules that no program imports: half of the time."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, capture_output=True)
    python = str(home / "bin" / "python")
    if importlib.util.find_spec("uv") is not None:
        command = [sys.executable, "-m", "uv", "pip", "install", "--python", python]
    else:
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
        command.append("--disable-pip-version-check")
    return subprocess.run([*command, "--quiet", "-r", str(pins)], capture_output=True, text=True, check=False)


def environment(server: Server) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "KUBECONFIG": str(server.kubeconfig), "HOME": str(server.kubeconfig.parent)}


@pytest.mark.clients
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_creates_lists_watches_patches_applies_and_deletes(
    client: str, server: Server, namespace: str
) -> None:
    completed = subprocess.run(
        [interpreter(client), PROGRAMS / CLIENTS[client], namespace],
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, f"after {completed.stdout.split()}:\n{completed.stderr[-3000:]}"
    assert [step for step in completed.stdout.split() if step in STEPS] == STEPS


def _finalizers(api: Client, at: str) -> list[str]:
    finalizers: list[str] = api.get(at).json["metadata"].get("finalizers", [])
    return finalizers


def _annotations(api: Client, at: str) -> str:
    return str(api.get(at).json["metadata"].get("annotations", {}))


@pytest.mark.clients
def test_a_kopf_operator_handles_creation_changes_and_deletion(server: Server, namespace: str) -> None:
    api, collection = server.admin, f"/api/v1/namespaces/{namespace}/configmaps"
    with subprocess.Popen(
        [interpreter("kopf"), PROGRAMS / "with_kopf.py", namespace],
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as operator:
        try:
            api.post(collection, {"metadata": {"name": "a", "labels": {"kopf": "yes"}}, "data": {"k": "1"}})
            at = f"{collection}/a"
            eventually(
                lambda: "torchyard.dev/adopted" in api.get(at).json["metadata"].get("annotations", {}), "adoption"
            )
            eventually(lambda: _finalizers(api, at) == ["kopf.torchyard.dev/finalizer"], "the finalizer")
            api.patch(at, {"data": {"k": "2"}})
            eventually(lambda: '"k":"2"' in _annotations(api, at), "the update noticed")
            api.delete(at)
            eventually(lambda: api.get(at).status == 404, "the finalizer removed")
            output, _ = operator.communicate(timeout=30)
        finally:
            operator.kill()
    assert {"create", "watch", "patch", "delete"} <= set(output.split()), output[-3000:]
    events = api.get(f"/api/v1/namespaces/{namespace}/events").json["items"]
    assert any("adopted a" in event["message"] for event in events)
