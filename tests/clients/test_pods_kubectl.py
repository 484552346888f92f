"""The pod commands of kubectl, every version of it on this machine, against a plane that really runs the pods."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
import pty
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node import support
from tests.support.kubectl import Kubectl
from tests.support.process import free_port
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.clients

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: here
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
  - name: main
    image: python:3.11
    command: [sh, -c]
    args: ["seq -f 'line %g' 3; cd /tmp; echo served > index.html; exec python3 -m http.server 8080"]
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    support.need_sandbox()
    made = Yard(tmp_path_factory.mktemp("pods"), flags=("--node", "--node-name", "here"))
    with made:
        yield made
        asyncio.run(stop_pods(made.state / "node"))


@pytest.fixture
def kube(kubectl: Kubectl, plane: Yard, tmp_path: Path) -> Kubectl:
    return kubectl.using(plane.kubeconfig, tmp_path / "cache")


@pytest.fixture
def pod(kube: Kubectl) -> Iterator[str]:
    name = f"p-{kube.minor}"
    kube("create", "--validate=false", "-f", "-", stdin=POD.replace("NAME", name))
    kube("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    yield name
    kube("delete", "pod", name, "--wait=false")


def test_logs_exec_and_cp(kube: Kubectl, pod: str, tmp_path: Path) -> None:
    assert kube("logs", pod).splitlines()[:3] == ["line 1", "line 2", "line 3"]
    assert re.fullmatch(r"\d{4}-.*Z .+\n", kube("logs", pod, "--tail=1", "--timestamps"))
    assert kube("exec", pod, "--", "sh", "-c", "echo $HOSTNAME") == f"{pod}\n"
    assert kube("exec", "-i", pod, "--", "cat", stdin="typed\n") == "typed\n"
    assert kube.run("exec", pod, "--", "sh", "-c", "exit 7").returncode == 7
    missing = kube.run("exec", pod, "--", "no-such-program")
    assert missing.returncode != 0
    assert "executable file not found in $PATH" in missing.stderr
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    for number in range(20):
        (tree / "deep" / f"f{number}").write_bytes(os.urandom(50_000))
    kube("cp", str(tree), f"{pod}:/tmp/tree")
    kube("cp", f"{pod}:/tmp/tree", str(tmp_path / "back"))
    assert digest(tmp_path / "back") == digest(tree)


def digest(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_terminal_is_one(kube: Kubectl, pod: str) -> None:
    far, near = pty.openpty()
    command = [str(kube.path), "exec", "-it", pod, "--", "sh", "-c", "tty && stty size && read x && echo got $x"]
    environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), **kube.environment}
    process = subprocess.Popen(command, stdin=near, stdout=near, stderr=near, env=environment, start_new_session=True)
    os.close(near)
    said = _read_until(far, b"/dev/pts/")
    os.write(far, b"it\r")
    said += _read_until(far, b"got it")
    assert process.wait(20) == 0
    os.close(far)
    assert b"got it" in said


def _read_until(descriptor: int, mark: bytes, seconds: float = 20) -> bytes:
    said, end = b"", time.monotonic() + seconds
    while mark not in said and time.monotonic() < end:
        try:
            said += os.read(descriptor, 4096)
        except OSError:
            break
    return said


def _fetched(port: int) -> bytes:
    """What the pod serves through the forwarded port; nothing if it closes the connection."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=10) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException):
        return b""


def test_port_forward_carries_many_requests(kube: Kubectl, pod: str) -> None:
    port = free_port()
    command = [str(kube.path), "port-forward", f"pod/{pod}", f"{port}:8080"]
    environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), **kube.environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        assert process.stdout
        assert b"Forwarding" in process.stdout.readline()
        # The pod's program may not listen yet: its first answer is waited for, and then every one counts.
        eventually(lambda: _fetched(port) == b"served\n", "the first answer", 60)
        for _ in range(5):
            assert _fetched(port) == b"served\n"
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def test_logs_follow_until_the_end(kube: Kubectl) -> None:
    name = f"follow-{kube.minor}"
    script = "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"
    kube(
        "run",
        name,
        "--image=busybox",
        "--restart=Never",
        '--overrides={"spec":{"nodeName":"here"}}',
        "--",
        "sh",
        "-c",
        script,
    )
    for _ in range(100):
        found = kube.run("logs", "-f", name)
        if found.returncode == 0 and found.stdout:
            break
        time.sleep(0.1)
    assert found.stdout.split() == ["1", "2", "3", "4", "5"]
    kube("delete", "pod", name, "--wait=false")


def test_run_attached_carries_input_and_output(kube: Kubectl) -> None:
    name = f"attached-{kube.minor}"
    overrides = '{"spec":{"nodeName":"here"}}'
    out = kube.run(
        "run", name, "-i", "--rm", "--restart=Never", "--image=busybox", f"--overrides={overrides}",
        "--command", "--", "sh", "-c", "read x; echo got $x", stdin="typed\n",
    )  # fmt: skip
    assert "got typed" in out.stdout, out.stderr
    assert kube.run("get", "pod", name).returncode != 0
