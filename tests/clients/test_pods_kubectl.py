"""The commands of kubectl that need a running pod, against a plane that really runs them."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import itertools
import os
import pty
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.conftest import CHOSEN
from tests.node import support
from tests.support import kubectl as kubectls
from tests.support.effort import FULL
from tests.support.kubectl import Kubectl
from tests.support.process import free_port
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.clients
_numbers = itertools.count()

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
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    support.need_sandbox()
    yard = Yard(tmp_path_factory.mktemp("pods"), flags=("--node", "--node-name", "here"))
    with yard:
        yield yard
        asyncio.run(stop_pods(yard.state / "node"))


@pytest.fixture(params=CHOSEN or ["none"])
def kube(request: pytest.FixtureRequest, plane: Yard, tmp_path: Path) -> Kubectl:
    if request.param == "none":
        pytest.skip(kubectls.MISSING)
    kubectl = Kubectl(request.param, kubectls.versions()[request.param])
    return kubectl.using(plane.kubeconfig, tmp_path / "cache")


@pytest.fixture
def pod(kube: Kubectl) -> Iterator[str]:
    name = f"p-{kube.minor}-{next(_numbers)}"
    kube("create", "--validate=false", "-f", "-", stdin=POD.replace("NAME", name))
    kube("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
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


def test_exec_with_tty_allocates_a_terminal(kube: Kubectl, pod: str) -> None:
    far, near = pty.openpty()
    command = [str(kube.path), "exec", "-it", pod, "--", "sh", "-c", "tty && stty size && read x && echo got $x"]
    environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), **kube.environment}
    process = subprocess.Popen(command, stdin=near, stdout=near, stderr=near, env=environment, start_new_session=True)
    os.close(near)
    output = _read_until(far, b"/dev/pts/")
    os.write(far, b"it\r")
    output += _read_until(far, b"got it")
    assert process.wait(20) == 0
    os.close(far)
    assert b"got it" in output


def _read_until(descriptor: int, mark: bytes, seconds: float = 20) -> bytes:
    output, end = b"", time.monotonic() + seconds
    while mark not in output and time.monotonic() < end:
        try:
            output += os.read(descriptor, 4096)
        except OSError:
            break
    return output


def _fetched(port: int) -> bytes:
    """What the pod serves through the forwarded port; nothing if it closes the connection."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=10) as response:
            return bytes(response.read())
    except (OSError, http.client.HTTPException):
        return b""


@pytest.mark.parametrize("target", ["pod", "service"])
def test_port_forward_serves_many_requests(kube: Kubectl, pod: str, target: str) -> None:
    port = free_port()
    kube("label", "pod", pod, f"app={pod}")
    to = f"pod/{pod}"
    if target == "service":
        kube("expose", "pod", pod, "--name", f"s-{pod}", "--port=80", "--target-port=8080")
        to = f"svc/s-{pod}"
    command = [str(kube.path), "port-forward", to, f"{port}:{80 if target == 'service' else 8080}"]
    environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), **kube.environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    try:
        assert process.stdout
        assert b"Forwarding" in process.stdout.readline()
        for _ in range(5):
            assert _fetched(port) == b"served\n"
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()
        kube("delete", "service", f"s-{pod}", "--ignore-not-found")


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
    for _ in range(600):
        logs = kube.run("logs", "-f", name)
        if logs.returncode == 0 and logs.stdout:
            break
        time.sleep(0.1)
    assert logs.stdout.split() == ["1", "2", "3", "4", "5"]
    kube("delete", "pod", name, "--wait=false")


def test_run_attached_copies_input_and_output(kube: Kubectl) -> None:
    name = f"attached-{kube.minor}"
    overrides = '{"spec":{"nodeName":"here"}}'
    out = kube.run(
        "run", name, "-i", "--rm", "--restart=Never", "--image=busybox", f"--overrides={overrides}",
        "--command", "--", "sh", "-c", "read x; echo got $x", stdin="typed\n",
    )  # fmt: skip
    assert "got typed" in out.stdout, out.stderr
    assert kube.run("get", "pod", name).returncode != 0


TALKER = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {talks: NAME}}
spec:
  nodeName: here
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  volumes: [{name: memory, emptyDir: {}}]
  containers:
  - name: twice
    image: busybox
    command: [sh, -c, "if [ -e /memory/been ]; then echo second; sleep 600; fi; touch /memory/been; echo first; exit 1"]
    volumeMounts: [{name: memory, mountPath: /memory}]
  - name: once
    image: busybox
    command: [sh, -c, "echo only; for i in $(seq 600); do echo again $i; sleep 1; done"]
"""


def test_logs_of_all_containers_previous_instances_and_by_label(kube: Kubectl) -> None:
    name = f"talker-{kube.minor}"
    kube("create", "--validate=false", "-f", "-", stdin=TALKER.replace("NAME", name))
    eventually(lambda: kube.run("logs", name, "-c", "twice").stdout == "second\n", "the second run", 60)
    assert kube("logs", name, "-c", "twice", "--previous") == "first\n"
    every = kube("logs", name, "--all-containers")
    assert {"second", "only"} <= set(every.split("\n"))
    assert "only" in kube("logs", "-l", f"talks={name}", "--all-containers", "--tail=-1", "--since=1h")
    assert kube("logs", name, "-c", "once", "--since-time=2999-01-01T00:00:00Z") == ""
    attached = kube.start("attach", name, "-c", "once")
    assert attached.stdout is not None
    assert attached.stdout.readline().startswith("again ")
    attached.terminate()
    attached.communicate(timeout=20)
    kube("delete", "pod", name, "--wait=false")


def test_logs_of_a_job_are_those_of_its_pod(kube: Kubectl) -> None:
    name = f"job-{kube.minor}"
    kube("create", "job", name, "--image=busybox", "--", "echo", "from the job")
    kube("wait", "--for=condition=complete", f"job/{name}", "--timeout=60s")
    assert kube("logs", f"job/{name}") == "from the job\n"
    kube("delete", "job", name)


def test_top_shows_what_nodes_and_pods_use(kube: Kubectl, pod: str) -> None:
    def is_shown(*arguments: str) -> list[list[str]]:
        return [line.split() for line in kube.run("top", *arguments).stdout.splitlines()]

    eventually(lambda: any(row[0] == pod for row in is_shown("pods")), "the pod's usage", 60)
    assert is_shown("pods")[0] == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    (row,) = (row for row in is_shown("pod", pod, "--containers") if row[0] == pod)
    assert row[1] == "main"
    assert re.fullmatch(r"\d+m", row[2])
    assert re.fullmatch(r"[1-9]\d*Mi", row[3])
    head, node = is_shown("nodes")
    assert (head[:2], node[0]) == (["NAME", "CPU(cores)"], "here")
    assert re.fullmatch(r"\d+%", node[2])
    assert pod in kube("describe", "node", "here")


def test_a_large_tree_is_copied_both_ways(kube: Kubectl, pod: str, tmp_path: Path) -> None:
    newest = kubectls.newest()
    if not FULL and newest and kube.version != newest.version:
        pytest.skip("the usual run copies much with the newest kubectl only")
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    for number in range(10):
        (tree / "deep" / "er" / f"f{number}").write_bytes(os.urandom(20_000_000))
    (tree / "empty").touch()
    kube("cp", str(tree), f"{pod}:/tmp/large", timeout=300)
    kube("cp", f"{pod}:/tmp/large", str(tmp_path / "back"), timeout=300)
    assert digest(tmp_path / "back") == digest(tree)


def test_attach_connects_to_the_running_process(kube: Kubectl) -> None:
    name = f"listener-{kube.minor}"
    spec = '{"spec":{"nodeName":"here","containers":[{"name":"main","image":"busybox","stdin":true,"stdinOnce":true'
    script = '"command":["sh","-c","read x; echo got $x; read y; echo and $y"]}]}}'
    kube("run", name, "--image=busybox", "--restart=Never", f"--overrides={spec},{script}")
    kube("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    output = kube.run("attach", "-i", name, stdin="one\ntwo\n")
    assert "got one\nand two\n" in output.stdout, output.stderr
    eventually(lambda: kube("get", "pod", name, "-o", "jsonpath={.status.phase}") == "Succeeded", "the pod ended")
    kube("delete", "pod", name, "--wait=false")


def test_debug_adds_a_container_in_the_pods_namespaces(kube: Kubectl, pod: str) -> None:
    script = "hostname; cat < /dev/tcp/127.0.0.1/8080 & sleep 0.1; echo looked"
    kube("debug", pod, "--image=busybox", "--container=look", "--", "bash", "-c", script)
    eventually(lambda: "looked" in kube.run("logs", pod, "-c", "look").stdout, "the debugger's words")
    assert kube("logs", pod, "-c", "look").splitlines()[0] == pod
