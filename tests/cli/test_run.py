"""`yard run` on a plane with a node: exit codes, logs of all replicas, Ctrl-C, bad manifests."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.test_manifests import PRINTED
from tests.node.support import need_network
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment, yard

from torchyard.api.objects import Object

TIMEOUT = 240


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("run"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


def manifest(directory: Path, obj: Object) -> str:
    path = directory / "manifest.yaml"
    path.write_text(json.dumps(obj))
    return str(path)


def pod(name: str, script: str) -> Object:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(name: str, script: str) -> Object:
    container = {"name": "pytorch", "image": "busybox", "command": ["sh", "-c", script]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"torchyard.dev/init-container": "off"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": 2}}},
    }


def start_run(plane: Yard, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_command(), "run", *arguments, "--kubeconfig", str(plane.kubeconfig)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", **_environment()},
    )


def run(plane: Yard, *arguments: str) -> tuple[int, str]:
    """Run `yard run` to its end; return its exit code and its output."""
    with start_run(plane, *arguments) as process:
        output, _ = process.communicate(timeout=TIMEOUT)
    return process.returncode, output


def test_a_job_is_followed_with_the_logs_of_all_replicas(plane: Yard, tmp_path: Path) -> None:
    file = manifest(tmp_path, job("good", "echo I am $RANK of $WORLD_SIZE; sleep 1"))
    code, output = run(plane, file)
    assert code == 0, output
    assert output.startswith("pytorchjob.kubeflow.org/good applied\n")
    for line in ("[master-0] I am 0 of 3", "[worker-0] I am 1 of 3", "[worker-1] I am 2 of 3"):
        assert line in output.splitlines()
    assert output.splitlines()[-1].startswith("pytorchjob.kubeflow.org/good Succeeded: ")
    code, output = run(plane, file)
    assert code == 1
    assert "already exists and has finished (Succeeded)" in output
    code, output = run(plane, file, "--replace")
    assert code == 0, output


def test_the_exit_code_is_that_of_the_container_that_failed_first(plane: Yard, tmp_path: Path) -> None:
    failing = 'if [ "$RANK" = 1 ]; then echo out of luck >&2; exit 3; fi; sleep 4; exit 1'
    code, output = run(plane, manifest(tmp_path, job("bad", failing)))
    assert code == 3, output
    assert "[worker-0] out of luck" in output.splitlines()
    assert "first to fail: bad-worker-0, exit code 3 (Error)" in output


@pytest.mark.parametrize(
    ("choice", "status", "message"),
    [("leave", 200, "keeps running\nfollow it with: yard logs -f"), ("delete", 404, "deleted")],
)
def test_ctrl_c_leaves_or_deletes_the_pod_as_on_interrupt_says(
    plane: Yard, tmp_path: Path, choice: str, status: int, message: str
) -> None:
    name, api = f"long-{choice}", plane.server().admin
    with start_run(plane, manifest(tmp_path, pod(name, "echo up; sleep 600")), "--on-interrupt", choice) as process:
        assert process.stdout is not None
        head = ""
        for line in process.stdout:
            head += line
            if line.strip() == "up":
                break
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, head + rest
    assert f"pod/{name} {message}" in rest
    path = f"/api/v1/namespaces/default/pods/{name}"
    eventually(lambda: api.get(path).status == status, f"status {status} for {name}")


def test_a_pod_that_cannot_start_says_why(plane: Yard, tmp_path: Path) -> None:
    unknown = pod("unknown", "true")
    unknown["spec"]["containers"][0]["image"] = "example/unknown:1"
    with start_run(plane, manifest(tmp_path, unknown)) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "is waiting" in line)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert "unknown is waiting: " in line
    assert "ErrImagePull: " in line  # at once, or after the first back-off
    assert "yard image build" in line


def test_a_manifest_without_indentation_gets_an_error_that_names_the_line(plane: Yard, tmp_path: Path) -> None:
    (tmp_path / "printed.yaml").write_text(PRINTED)
    code, output = run(plane, str(tmp_path / "printed.yaml"))
    assert code == 1
    assert 'line 4: "name" has the same indentation as "metadata" in line 3, but belongs below it' in output
    assert "hint: indent line 4" in output
