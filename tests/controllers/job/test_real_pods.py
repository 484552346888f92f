"""kubectl's commands about Jobs, with real pods."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support import kubectl as kubectls
from tests.support.accounts import wait_for_account
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

pytestmark = pytest.mark.clients

_numbers = itertools.count()


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
    """The newest kubectl of this machine, in its own namespace, on a plane with a ready node."""
    kubectl = kubectls.need()
    namespace = f"documents-{next(_numbers)}"
    admin = kubectl.using(plane.kubeconfig, tmp_path)
    eventually(lambda: " Ready " in admin("get", "nodes"), "a node")
    admin("create", "namespace", namespace)
    wait_for_account(plane.admin, namespace)
    return kubectl.using(plane.kubeconfig, tmp_path, namespace)


def test_kubectl_creates_waits_for_and_shows_a_job(shell: Kubectl) -> None:
    assert shell("create", "job", "hello", "--image=busybox", "--", "echo", "hello") == "job.batch/hello created\n"
    assert shell("wait", "--for=condition=complete", "job/hello", "--timeout=60s") == "job.batch/hello condition met\n"
    assert shell("logs", "job/hello") == "hello\n"
    header, line = shell("get", "jobs").splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert line.split()[:3] == ["hello", "Complete", "1/1"]
    eventually(lambda: "Job completed" in shell("describe", "job", "hello"), "the last event")


def test_each_index_of_an_indexed_job_has_its_own_hostname(shell: Kubectl) -> None:
    say = ["sh", "-c", "echo $JOB_COMPLETION_INDEX on $(hostname)"]
    container = {"name": "main", "image": "busybox", "command": say}
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep"},
        "spec": {**spec, "template": template},
    }
    shell("create", "-f", "-", stdin=json.dumps(job))
    shell("wait", "--for=condition=complete", "job/sweep", "--timeout=60s")
    for index in range(4):
        output = shell("logs", "-l", f"batch.kubernetes.io/job-completion-index={index}")
        assert output == f"{index} on sweep-{index}\n"


def test_a_job_that_keeps_failing_fails(shell: Kubectl) -> None:
    shell("create", "job", "bad", "--image=busybox", "--", "sh", "-c", "exit 3")
    shell("patch", "job", "bad", "-p", '{"spec": {"backoffLimit": 0}}')
    shell("wait", "--for=condition=failed", "job/bad", "--timeout=90s", timeout=120)
    eventually(lambda: "BackoffLimitExceeded" in shell("describe", "job", "bad"), "the event")
    assert {line.split()[2] for line in shell("get", "pods", "--no-headers").splitlines()} == {"Error"}


def test_a_cron_jobs_job_can_be_started_by_hand(shell: Kubectl) -> None:
    shell("create", "cronjob", "tick", "--image=busybox", "--schedule=0 0 1 1 *", "--", "echo", "tock")
    shell("create", "job", "--from=cronjob/tick", "now")
    shell("wait", "--for=condition=complete", "job/now", "--timeout=60s")
    assert shell("logs", "job/now") == "tock\n"
    header, line = shell("get", "cronjobs").splitlines()
    assert header.split() == ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]
    assert line.split()[:7] == ["tick", "0", "0", "1", "1", "*", "<none>"]
