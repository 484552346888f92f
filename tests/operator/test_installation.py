"""What an installation gives, seen from outside: rights in some namespaces only, and what `yard doctor` says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.operator import INSTALLATION, denied, installation, running
from tests.support.pytorchjobs import job

from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Ref
from torchyard.kube.refs import CLUSTER_ROLES
from torchyard.operator.install import uninstall
from torchyard.operator.settings import NAME

pytestmark = pytest.mark.cluster
Object = dict[str, Any]
ROLES = Ref("rbac.authorization.k8s.io", "v1", "roles")


def yard(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def train(namespace: str) -> Object:
    made = job()
    made["metadata"] = {"name": "train", "namespace": namespace}
    return made


async def test_an_operator_of_one_namespace_has_rights_there_only(kube: Server) -> None:
    to = replace(INSTALLATION, watched=("team-a",))
    async with installation(kube) as everywhere:
        await everywhere.namespace("team-a")
        await everywhere.namespace("team-b")
    async with installation(kube, to) as installed:
        role = await installed.admin.get(CLUSTER_ROLES, NAME)
        assert {name for rule in role["rules"] for name in rule["resources"]} == {
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
        }
        async with running(installed, namespaces=("team-a",), webhook=True) as operator:
            await installed.admin.create(JOBS, train("team-b"))
            await installed.admin.create(JOBS, train("team-a"))
            await installed.pods("team-a", 3)
            assert await installed.pods("team-b", 0) == []
            assert not denied(operator)
        said: list[str] = []
        await uninstall(installed.admin, to, said.append)
        assert await installed.admin.find(ROLES, NAME, "team-a") is None


def test_the_doctor_says_of_any_context_what_it_lacks(kube: Server) -> None:
    told = yard("doctor", "--kubeconfig", str(kube.kubeconfig), "--context", "test")
    lines = {line[2:].split(":")[0]: line for line in told.stdout.splitlines()}
    assert lines["cluster"].startswith("✓") and "Kubernetes v1." in lines["cluster"]
    assert lines["your rights"].endswith("you may create PyTorchJobs in default")
    assert set(lines) >= {"PyTorchJobs", "operator", "admission", "other operators", "gang schedulers", "queues"}


def test_the_doctor_says_what_a_stranger_may_not_see(kube: Server, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(kube.kubeconfig.read_text().replace(kube.token, "bob-token"))
    told = yard("doctor", "--kubeconfig", str(stranger))
    assert "✗ your rights" in told.stdout and "you may not create PyTorchJobs in default" in told.stdout
    assert "may not be seen" in told.stdout


def test_a_context_that_is_not_there_is_said(kube: Server) -> None:
    told = yard("doctor", "--kubeconfig", str(kube.kubeconfig), "--context", "nowhere")
    assert told.returncode == 1 and "nowhere" in told.stderr
