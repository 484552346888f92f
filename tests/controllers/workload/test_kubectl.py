"""kubectl's commands about rollouts, on a plane whose pods the test makes ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import kubectl as kubectls
from tests.support.accounts import wait_for_account
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

pytestmark = pytest.mark.clients

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("rollouts"), controllers="*,-daemonset-controller") as server:
        wait_for_account(server.admin)
        yield server


@pytest.fixture
def shell(plane: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return kubectls.need().using(plane.kubeconfig, tmp_path_factory.mktemp("shell"), "default")


def roll_out(plane: Server, shell: Kubectl, target: str) -> None:
    """Make pods ready until the rollout is complete."""

    def is_complete() -> bool:
        for pod in plane.admin.get(PODS).json["items"]:
            if pod["status"].get("phase") == "Pending":
                ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
                plane.admin.patch(f"{PODS}/{pod['metadata']['name']}/status", ready)
        return shell.run("rollout", "status", target, "--timeout=1s").returncode == 0

    eventually(is_complete, f"the rollout of {target}")


def images(plane: Server, app: str) -> list[str]:
    pods = plane.admin.get(PODS, query={"labelSelector": f"app={app}"}).json["items"]
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def test_a_deployment_is_created_changed_rolled_back_and_restarted(plane: Server, shell: Kubectl) -> None:
    shell("create", "deployment", "web", "--image=nginx:1", "--replicas=2")
    roll_out(plane, shell, "deployment/web")
    shell("set", "image", "deployment/web", "nginx=nginx:2")
    roll_out(plane, shell, "deployment/web")
    assert images(plane, "web") == ["nginx:2"] * 2
    assert shell("rollout", "history", "deployment/web").splitlines()[2:4] == ["1         <none>", "2         <none>"]
    assert shell("rollout", "undo", "deployment/web") == "deployment.apps/web rolled back\n"
    roll_out(plane, shell, "deployment/web")
    assert images(plane, "web") == ["nginx:1"] * 2
    assert shell("rollout", "history", "deployment/web").splitlines()[2:4] == ["2         <none>", "3         <none>"]
    shell("rollout", "pause", "deployment/web")
    assert "cannot rollback a paused deployment" in shell.fails("rollout", "undo", "deployment/web")
    shell("rollout", "resume", "deployment/web")
    shell("rollout", "restart", "deployment/web")
    roll_out(plane, shell, "deployment/web")
    shell("scale", "deployment/web", "--replicas=3")
    roll_out(plane, shell, "deployment/web")
    row = shell("get", "deployment", "web").splitlines()[1].split()
    assert row[:4] == ["web", "3/3", "3", "3"]
    shell("delete", "deployment", "web", "--cascade=foreground", "--timeout=30s")
    assert images(plane, "web") == []


STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "db:1"}]}
"""


def test_a_stateful_set_is_changed_and_rolled_back(plane: Server, shell: Kubectl) -> None:
    shell("create", "-f", "-", stdin=STATEFUL_SET)
    roll_out(plane, shell, "statefulset/db")
    shell("set", "image", "statefulset/db", "main=db:2")
    roll_out(plane, shell, "statefulset/db")
    assert images(plane, "db") == ["db:2"] * 2
    shell("rollout", "undo", "statefulset/db")
    roll_out(plane, shell, "statefulset/db")
    assert images(plane, "db") == ["db:1"] * 2
    assert shell("rollout", "history", "statefulset/db").splitlines()[2:4] == ["2         <none>", "3         <none>"]
    assert shell("get", "statefulset", "db").splitlines()[1].split()[:2] == ["db", "2/2"]


def test_a_controller_that_is_switched_off_leaves_its_kind_alone(shell: Kubectl) -> None:
    daemons = STATEFUL_SET.replace("StatefulSet", "DaemonSet").replace("  replicas: 2\n  serviceName: db\n", "")
    created = shell.run("create", "-f", "-", stdin=daemons)
    assert created.returncode == 0
    assert "daemonset-controller does not run here" in created.stderr
    assert shell("get", "daemonset", "db").splitlines()[1].split()[1:4] == ["0", "0", "0"]
