"""The commands of the document about Jobs on a shared service, with a real kubectl on a plane that runs pods.

Without a queue controller its jobs run as plain Jobs. Where no claim can be bound, a directory stands for the volume.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object

pytestmark = pytest.mark.clients

DOCUMENT = ROOT / "examples" / "queued-jobs"
TIMEOUT = 120


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("jobs"), controllers="*", flags=("--node",))
    try:
        yield plane.start()
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    kubectl = kubectls.need()
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    eventually(lambda: plane.admin.get(path).status == 200, "the service account")
    return kubectl.using(plane.kubeconfig, tmp_path, "default")


def manifest(name: str, volume: Path, **spec: Any) -> Object:
    """Return a Job of the document without its queue label, with a directory as its volume."""
    read: Object = yaml.safe_load((DOCUMENT / name).read_text())
    del read["metadata"]["labels"]
    read["spec"] |= spec
    read["spec"]["template"]["spec"]["volumes"] = [{"name": "volume", "hostPath": {"path": str(volume)}}]
    return read


def create(shell: Kubectl, obj: Object) -> str:
    """Create a Job and return its generated name."""
    output = shell("create", "-f", "-", stdin=yaml.safe_dump(obj))
    assert output.startswith(f"job.batch/{obj['metadata']['generateName']}")
    return output.split()[0].removeprefix("job.batch/")


def pods(shell: Kubectl, job: str) -> list[Object]:
    items: list[Object] = json.loads(shell("get", "pods", "-l", f"job-name={job}", "-o", "json"))["items"]
    return items


@pytest.mark.row("S3.3", "S3.4")
def test_kubectl_cp_works_both_ways_and_the_files_outlive_the_job(shell: Kubectl, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    job = create(shell, manifest("lightweight-pod-job.yaml", volume))
    eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in pods(shell, job)), "the pod", TIMEOUT)
    (pod,) = [pod["metadata"]["name"] for pod in pods(shell, job)]
    program = DOCUMENT / "example_pytorch_code.py"
    shell("cp", str(program), f"{pod}:/mnt/ceph/")
    assert shell("exec", pod, "--", "ls", "/mnt/ceph") == "example_pytorch_code.py\n"
    shell("cp", f"{pod}:mnt/ceph/example_pytorch_code.py", str(tmp_path / "back.py"))
    assert (tmp_path / "back.py").read_bytes() == program.read_bytes()
    # kubectl names the namespace since 1.34
    assert shell("delete", "job", job).startswith(f'job.batch "{job}" deleted')
    eventually(lambda: pods(shell, job) == [], "the pod gone", TIMEOUT)
    assert (volume / "example_pytorch_code.py").read_bytes() == program.read_bytes()


@pytest.mark.row("S3.5")
def test_a_training_stays_pending_without_the_selected_gpu(shell: Kubectl, tmp_path: Path) -> None:
    job = create(shell, manifest("pytorch-job.yaml", tmp_path))
    eventually(lambda: len(pods(shell, job)) == 1, "the pod", TIMEOUT)
    name = pods(shell, job)[0]["metadata"]["name"]
    reason = "1 node(s) didn't match Pod's node affinity/selector"
    eventually(lambda: reason in shell("describe", "pod", name), "the reason", TIMEOUT)
    assert "Pending" in shell("get", "pod", name)
    shell("delete", "job", job)


@pytest.mark.row("S3.6")
def test_three_completions_in_a_row_then_the_ttl_deletes_the_job(shell: Kubectl, tmp_path: Path) -> None:
    """The first pod fails, and the Job creates another one after the back-off."""
    obj = manifest("pytorch-job-three-times.yaml", tmp_path, ttlSecondsAfterFinished=5)
    script = "if mkdir /mnt/ceph/tried; then exit 1; fi; date +%s%N >> /mnt/ceph/times"
    container = {
        **obj["spec"]["template"]["spec"]["containers"][0],
        "image": "busybox",
        "command": ["sh", "-c", script],
    }
    del container["args"], container["resources"]
    obj["spec"]["template"]["spec"] |= {"containers": [container], "nodeSelector": {}}
    job = create(shell, obj)
    seen: list[Object] = []

    def complete() -> bool:
        done = shell.run("get", "job", job, "-o", "json")
        if done.returncode == 0:
            seen.append(json.loads(done.stdout)["status"])
        return any(status.get("completionTime") for status in seen)

    eventually(complete, "three successes", TIMEOUT)
    assert (seen[-1]["succeeded"], seen[-1]["failed"]) == (3, 1)
    assert all((status.get("active") or 0) <= 1 for status in seen), "one at a time"
    assert len((tmp_path / "times").read_text().split()) == 3
    eventually(lambda: "not found" in shell.run("get", "job", job).stderr, "the job gone after its time", TIMEOUT)
    eventually(lambda: pods(shell, job) == [], "its pods gone", TIMEOUT)
