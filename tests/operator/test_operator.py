"""The operator on a real API server with its own service account: jobs, missing parts, reviews, hand-over."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest
from tests.support.operator import INSTALLATION, NAMESPACES, PODS, Installed, running, started
from tests.support.pytorchjobs import job

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import LEASES, SECRETS
from torchyard.api.jobset.crd import CRD_NAME as JOBSET_CRD_NAME
from torchyard.api.objects import Object
from torchyard.api.pytorchjob.crd import CRD_NAME
from torchyard.controllers.pytorchjob import JOBS
from torchyard.operator.certificates import VALIDATING
from torchyard.operator.checks import ClusterNotReady, check_own_namespace, check_permissions
from torchyard.operator.install import DEFINITIONS, install, uninstall
from torchyard.operator.manifests import LABELS, definitions
from torchyard.operator.permissions import job_permissions
from torchyard.operator.samples import OperatorSamples
from torchyard.operator.settings import LEASE, NAME, NAMESPACE, WEBHOOK, WEBHOOK_SECRET

pytestmark = pytest.mark.cluster
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)


def train(namespace: str, name: str = "train", **labels: str) -> Object:
    manifest = job()
    manifest["metadata"] = {"name": name, "namespace": namespace, "labels": labels}
    return manifest


async def finish(installed: Installed, namespace: str, count: int) -> None:
    """As a kubelet: every pod runs and succeeds."""
    for phase in ("Running", "Succeeded"):
        for pod in await installed.pods(namespace, count):
            patch = {"status": {"phase": phase}}
            await installed.admin.patch(PODS, pod["metadata"]["name"], patch, namespace, subresource="status")


async def test_installing_twice_changes_nothing(installed: Installed) -> None:
    output: list[str] = []
    await install(installed.admin, INSTALLATION, lambda _: None)
    await install(installed.admin, INSTALLATION, output.append)
    assert output and all(line.endswith(" unchanged") for line in output), output


async def test_uninstalling_keeps_jobs_and_their_definition_by_default(installed: Installed) -> None:
    namespace = await installed.namespace("uninstalled")
    await installed.admin.create(JOBS, train(namespace))
    output: list[str] = []
    await uninstall(installed.admin, INSTALLATION, output.append)
    assert f"deployment/{NAME} deleted" in output and not any("customresourcedefinition" in line for line in output)
    assert await installed.admin.find(JOBS, "train", namespace) is not None

    async def gone() -> bool:
        return await installed.admin.find(NAMESPACES, NAMESPACE) is None

    await installed.until(gone)
    await uninstall(installed.admin, INSTALLATION, output.append, with_definitions=True)
    deleted = [f"customresourcedefinition/{obj['metadata']['name']} deleted" for obj in definitions()]
    assert len(deleted) == 5 and output[-5:] == deleted


async def test_a_definition_of_others_is_updated_but_never_deleted(installed: Installed) -> None:
    """The label says whose it is: that of an earlier installation is removed here, so the definition is of others."""
    labels = {"metadata": {"labels": dict.fromkeys(LABELS)}}
    await installed.admin.patch(DEFINITIONS, JOBSET_CRD_NAME, labels, kind="merge")
    await install(installed.admin, INSTALLATION, lambda _: None)
    output: list[str] = []
    await uninstall(installed.admin, INSTALLATION, output.append, with_definitions=True)
    remaining = f"customresourcedefinition/{JOBSET_CRD_NAME}"
    assert f"{remaining} was not created by yard install, and is kept with its objects" in output
    assert f"{remaining} deleted" not in output and f"customresourcedefinition/{CRD_NAME} deleted" in output
    await installed.admin.delete(DEFINITIONS, JOBSET_CRD_NAME)


async def test_a_job_runs_to_its_end_under_the_operators_own_role(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = await installed.namespace("own-role")
    async with running(installed) as operator:
        created = await installed.admin.create(JOBS, train(namespace))
        pods = await installed.pods(namespace, 3)
        await finish(installed, namespace, len(pods))

        async def succeeded() -> bool:
            return has_true_condition(
                await installed.admin.get(JOBS, created["metadata"]["name"], namespace), "Succeeded"
            )

        await installed.until(succeeded)
        url = f"http://127.0.0.1:{operator.ports['metrics']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            figures = await response.text()
    labels = f'{{framework="pytorch",job_namespace="{namespace}"}}'
    assert f"training_operator_jobs_created_total{labels} 1.0" in figures
    assert f"training_operator_jobs_successful_total{labels} 1.0" in figures
    for name in (
        "controller_runtime_reconcile_total",
        "workqueue_adds_total",
        "workqueue_depth",
        "rest_client_requests",
    ):
        assert f"\n{name}" in figures, name
    # Every denied request is a failure.
    assert 'code="403"' not in figures
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_only_jobs_in_the_selected_namespaces_and_with_the_labels_are_managed(installed: Installed) -> None:
    ours, theirs = await installed.namespace("chosen"), await installed.namespace("not-chosen")
    async with running(installed, namespaces=(ours,), selector="team=a"):
        await installed.admin.create(JOBS, train(theirs, team="a"))
        await installed.admin.create(JOBS, train(ours, "other", team="b"))
        await installed.admin.create(JOBS, train(ours, team="a"))
        pods = await installed.pods(ours, 3)
        assert all(pod["metadata"]["name"].startswith("train-") for pod in pods)
        assert await installed.pods(theirs, 0) == []


async def test_a_second_replica_takes_over_and_creates_nothing_twice(installed: Installed) -> None:
    namespace = await installed.namespace("hand-over")
    async with running(installed, identity="second"):
        pass  # it can lead
    first, second = started(installed, identity="first"), started(installed, identity="second")
    leading = asyncio.create_task(first.run())

    async def leads() -> bool:
        return first.leads

    await installed.until(leads)
    waiting = asyncio.create_task(second.run())
    await installed.admin.create(JOBS, train(namespace))
    before = {pod["metadata"]["uid"] for pod in await installed.pods(namespace, 3)}
    leading.cancel()
    await asyncio.wait([leading])
    await installed.admin.create(JOBS, train(namespace, "next"))
    after = {pod["metadata"]["uid"] for pod in await installed.pods(namespace, 6)}
    assert second.leads and before < after
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0.25)


async def test_the_api_server_sends_every_job_to_the_webhook(installed: Installed) -> None:
    namespace = await installed.namespace("reviewed")
    async with running(installed, webhook=True):
        bad = train(namespace)
        bad["spec"]["pytorchReplicaSpecs"]["Boss"] = bad["spec"]["pytorchReplicaSpecs"]["Master"]

        with pytest.raises(StatusError, match=r"spec\.pytorchReplicaSpecs") as refusal:
            await installed.admin.create(JOBS, bad)
        assert refusal.value.status == 422
        await installed.admin.create(JOBS, train(namespace, "good"))
        await installed.pods(namespace, 3)
        secret = await installed.admin.get(SECRETS, WEBHOOK_SECRET, NAMESPACE)
        webhook = await installed.admin.get(VALIDATING, WEBHOOK)
        assert webhook["webhooks"][0]["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]


async def test_without_the_crd_the_operator_waits_and_says_what_to_do(installed: Installed) -> None:
    await installed.admin.delete(DEFINITIONS, CRD_NAME)

    async def forgotten() -> bool:
        try:
            await installed.admin.list(JOBS)
        except StatusError as error:
            return error.status == 404
        return False

    await installed.until(forgotten)
    operator = started(installed)
    task = asyncio.create_task(operator.run())

    async def complains() -> bool:
        return "does not serve pytorchjobs" in operator.health.problem

    await installed.until(complains)
    assert "yard install --crds-only" in operator.health.problem and not task.done()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{operator.ports['health']}/readyz") as response,
    ):
        assert response.status == 503 and "pytorchjobs" in await response.text()
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0.25)


async def test_without_its_namespace_the_operator_waits_and_says_what_to_do(installed: Installed) -> None:
    with pytest.raises(ClusterNotReady, match="namespace nowhere does not exist") as raised:
        await check_own_namespace(installed.admin, "nowhere", LEASE)
    assert "kubectl create namespace nowhere" in str(raised.value)
    await check_own_namespace(installed.admin, NAMESPACE, "new")
    await installed.admin.create(LEASES, {"metadata": {"name": "held"}}, NAMESPACE)
    await check_own_namespace(installed.admin, NAMESPACE, "held")
    await installed.admin.delete(LEASES, "held", NAMESPACE)


async def test_a_missing_permission_is_named(installed: Installed) -> None:
    role = await installed.admin.get(ROLES, NAME)
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["services"]]
    await installed.admin.update(ROLES, role)
    operator = started(installed)
    with pytest.raises(ClusterNotReady, match="create services"):
        # The authorizer's cache is updated with a delay.
        while True:
            await check_permissions(operator._client, job_permissions())
            await asyncio.sleep(0.1)
    await operator._client.close()
    await asyncio.sleep(0.25)


async def test_the_operator_does_not_start_next_to_another_training_operator(installed: Installed) -> None:
    namespace = await installed.namespace("kubeflow")
    labels = {"control-plane": "kubeflow-training-operator"}
    pod = {"metadata": {"name": "training-operator-0", "labels": labels}, "spec": _spec()}
    await installed.admin.create(PODS, pod, namespace)
    operator = started(installed)
    task = asyncio.create_task(operator.run())

    async def complains() -> bool:
        return "kubeflow/training-operator-0" in operator.health.problem

    await installed.until(complains)
    assert "--beside-upstream" in operator.health.problem
    await installed.admin.delete(PODS, "training-operator-0", namespace, grace=0)
    async with running(installed, beside_upstream=True):
        pass
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0.25)


def _spec() -> Object:
    return {"containers": [{"name": "operator", "image": "kubeflow/training-operator"}]}


async def test_a_part_that_fails_is_started_again_while_jobs_go_on(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0

    async def measure(_: OperatorSamples) -> bool:
        nonlocal failures
        failures += 1
        raise KeyError("metadata")  # as metrics without a part that they always have

    monkeypatch.setattr(OperatorSamples, "measure", measure)
    namespace = await installed.namespace("part-fails")
    async with running(installed) as operator:

        async def has_failed_again() -> bool:
            return failures >= 2

        await installed.until(has_failed_again)
        await installed.admin.create(JOBS, train(namespace))
        await installed.pods(namespace, 3)
        assert b'torchyard_part_failures_total{part="samples"}' in operator.metrics.text()
