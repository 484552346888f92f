"""Installations from the outside: permissions in some namespaces only, and what `yard doctor` reports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.kubernetes import Server
from tests.support.operator import INSTALLATION, denied, installation, running
from tests.support.pytorchjobs import job
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CLUSTER_ROLES, NAMESPACES, SERVICES
from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import PUBLIC, SYSTEM_NAMESPACE, TRAINER_VERSION
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client
from torchyard.kube.connect import open_client
from torchyard.kube.kubeconfig import load
from torchyard.operator.certificates import MUTATING, VALIDATING
from torchyard.operator.install import DEFINITIONS, install, uninstall
from torchyard.operator.settings import DEFAULTS_WEBHOOK, NAME, WEBHOOK

pytestmark = pytest.mark.cluster
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
SYSTEM = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")


def yard(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torchyard.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def train(namespace: str) -> Object:
    manifest = job()
    manifest["metadata"] = {"name": "train", "namespace": namespace}
    return manifest


async def test_an_operator_of_one_namespace_has_permissions_there_only(kube: Server) -> None:
    to = replace(INSTALLATION, watched=("team-a",))
    async with installation(kube) as everywhere:
        await everywhere.namespace("team-a")
        await everywhere.namespace("team-b")
    async with installation(kube, to) as installed:
        role = await installed.admin.get(CLUSTER_ROLES, NAME)
        verbs = {name: set(rule["verbs"]) for rule in role["rules"] for name in rule["resources"]}
        assert set(verbs) == {
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "clustertrainingruntimes",
            "tokenreviews",
        }
        assert verbs["tokenreviews"] == {"create"}
        assert verbs["clustertrainingruntimes"] <= {"create", "get", "list", "watch"}, "the runtimes that it installs"
        async with running(installed, namespaces=("team-a",), webhook=True) as operator:
            await installed.admin.create(JOBS, train("team-b"))
            await installed.admin.create(JOBS, train("team-a"))
            await installed.pods("team-a", 3)
            assert await installed.pods("team-b", 0) == []
            assert not denied(operator)
        output: list[str] = []
        await uninstall(installed.admin, to, output.append)
        assert await installed.admin.find(ROLES, NAME, "team-a") is None


@contextlib.asynccontextmanager
async def administered(kube: Server) -> AsyncIterator[Client]:
    async with open_client(load(kube.kubeconfig), "test") as admin:
        yield admin
    await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop


async def test_an_installation_deletes_objects_of_an_earlier_one_that_it_does_not_need(kube: Server) -> None:
    async with installation(kube, replace(INSTALLATION, watched=("default",), queues=True)) as earlier:
        assert await earlier.admin.find(ROLES, NAME, "default") is not None
    output: list[str] = []
    async with administered(kube) as admin:
        await install(admin, INSTALLATION, output.append)
        assert f"role/{NAME} deleted" in output and f"clusterrole/{NAME}-queues deleted" in output
        assert await admin.find(ROLES, NAME, "default") is None
        assert await admin.find(MUTATING, DEFAULTS_WEBHOOK) is None
        assert await admin.find(ROLES, NAME, INSTALLATION.namespace) is not None, "its own stays"


async def test_a_namespace_of_another_owner_is_neither_changed_nor_deleted(kube: Server) -> None:
    async with administered(kube) as admin:
        await admin.create(NAMESPACES, {"metadata": {"name": "shared", "labels": {"team": "a"}}})
        to, output = replace(INSTALLATION, namespace="shared"), list[str]()
        await install(admin, to, output.append)
        assert "namespace/shared was not created by yard install, and is left unchanged" in output
        before = (await admin.get(NAMESPACES, "shared"))["metadata"]["labels"]
        assert before == {"team": "a", "kubernetes.io/metadata.name": "shared"}
        await uninstall(admin, to, output.append)
        assert output[-1] == "namespace/shared was not created by yard install, and is kept"
        assert "deletionTimestamp" not in (await admin.get(NAMESPACES, "shared"))["metadata"]
        assert await admin.find(DEPLOYMENTS, NAME, "shared") is None


async def test_the_sdk_reads_the_version_of_the_api_which_an_uninstallation_removes(kube: Server) -> None:
    to, output = replace(INSTALLATION, namespace="for-the-sdk"), list[str]()
    async with administered(kube) as admin:
        await install(admin, to, lambda _: None)
        user = {"Impersonate-User": "someone", "Impersonate-Group": "system:authenticated"}
        read = kube.admin.get(f"{SYSTEM}/configmaps/{PUBLIC}", headers=user)
        assert read.json["data"] == {"kubeflow_trainer_version": TRAINER_VERSION}
        assert kube.admin.get(f"{SYSTEM}/configmaps", headers=user).status == 403
        await uninstall(admin, to, output.append)
        assert {f"{kind}/{PUBLIC} deleted" for kind in ("configmap", "role", "rolebinding")} <= set(output)
        assert kube.admin.get(f"{SYSTEM}/configmaps/{PUBLIC}").status == 404
        assert "deletionTimestamp" not in (await admin.get(NAMESPACES, SYSTEM_NAMESPACE))["metadata"]


async def test_the_version_that_upstreams_trainer_has_installed_is_neither_changed_nor_deleted(kube: Server) -> None:
    theirs = {"metadata": {"name": PUBLIC}, "data": {"kubeflow_trainer_version": "theirs"}}
    to, output = replace(INSTALLATION, namespace="beside-trainer"), list[str]()
    async with administered(kube) as admin:
        if await admin.find(NAMESPACES, SYSTEM_NAMESPACE) is None:
            await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        assert kube.admin.post(f"{SYSTEM}/configmaps", theirs).status == 201
        await install(admin, to, output.append)
        assert f"configmap/{PUBLIC} was not created by yard install, and is left unchanged" in output
        await install(admin, replace(to, trainjobs=False), output.append)
        await uninstall(admin, to, output.append)
        assert kube.admin.get(f"{SYSTEM}/configmaps/{PUBLIC}").json["data"] == theirs["data"]
        assert kube.admin.delete(f"{SYSTEM}/configmaps/{PUBLIC}").status == 200


async def test_a_namespace_with_jobs_is_kept(kube: Server) -> None:
    to, output = replace(INSTALLATION, namespace="with-jobs"), list[str]()
    async with administered(kube) as admin:
        await install(admin, to, lambda _: None)
        # the webhook is unreachable, which the server may notice a moment later
        await admin.delete(VALIDATING, WEBHOOK)

        async def taken() -> bool:
            try:
                await admin.create(JOBS, train("with-jobs"))
            except StatusError as error:
                if "webhook" not in error.message:
                    raise
                return False
            return True

        await first_answer(taken)
        await uninstall(admin, to, output.append)
        assert output[-1] == "namespace/with-jobs is kept, because it contains jobs"
        await admin.delete(JOBS, "train", "with-jobs")
        await uninstall(admin, to, output.append)
        assert output[-1] == "namespace/with-jobs deleted"


def test_the_doctor_reports_what_a_context_lacks(kube: Server) -> None:
    result = yard("doctor", "--kubeconfig", str(kube.kubeconfig), "--context", "test")
    lines = {line[2:].split(":")[0]: line for line in result.stdout.splitlines()}
    assert lines["cluster"].startswith("✓") and "Kubernetes v1." in lines["cluster"]
    assert lines["your permissions"].endswith("you may create PyTorchJobs in default")
    assert set(lines) >= {"PyTorchJobs", "operator", "admission", "other operators", "gang schedulers", "queues"}


def test_the_doctor_reports_denied_reads(kube: Server, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(kube.kubeconfig.read_text().replace(kube.token, "bob-token"))
    result = yard("doctor", "--kubeconfig", str(stranger))
    assert "✗ your permissions" in result.stdout and "you may not create PyTorchJobs in default" in result.stdout
    assert "permission denied" in result.stdout


def test_an_unknown_context_is_an_error(kube: Server) -> None:
    result = yard("doctor", "--kubeconfig", str(kube.kubeconfig), "--context", "nowhere")
    assert result.returncode == 1 and "nowhere" in result.stderr


def prometheus_definition(plural: str, kind: str) -> Object:
    """The definition of a kind of the Prometheus Operator, without its schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def is_served(client: Client, ref: GroupVersionResource) -> bool:
    try:
        await client.list(ref)
    except StatusError as error:
        assert error.status == 404
        return False
    return True


async def test_monitoring_is_installed_and_removed_and_needs_the_prometheus_operator(kube: Server) -> None:
    to = replace(INSTALLATION, monitoring=True)
    output: list[str] = []
    async with administered(kube) as client:
        with pytest.raises(YardError, match=r"monitoring\.coreos\.com") as missing:
            await install(client, to, output.append)
        assert "Prometheus Operator" in missing.value.hint
        definitions = {
            "servicemonitors": "ServiceMonitor",
            "podmonitors": "PodMonitor",
            "prometheusrules": "PrometheusRule",
        }
        for plural, kind in definitions.items():
            await client.create(DEFINITIONS, prometheus_definition(plural, kind))
            await first_answer(partial(is_served, client, GroupVersionResource("monitoring.coreos.com", "v1", plural)))
        monitors = GroupVersionResource("monitoring.coreos.com", "v1", "servicemonitors")
        await install(client, to, output.append)
        monitor = await client.get(monitors, NAME, to.namespace)
        service = await client.get(SERVICES, NAME, to.namespace)
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        await install(client, replace(to, monitoring=False), output.append)
        pod_monitors = GroupVersionResource("monitoring.coreos.com", "v1", "podmonitors")
        for resource in (monitors, pod_monitors):
            assert (await client.list(resource)).items == [], "no longer wanted"
        await uninstall(client, to, output.append, with_definitions=True)
        for plural in definitions:
            await client.delete(DEFINITIONS, f"{plural}.monitoring.coreos.com")
