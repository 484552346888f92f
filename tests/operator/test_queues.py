"""The operator on a cluster with Kueue's CRDs and webhook configuration; the test takes the part of Kueue's manager."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support import queues as builders
from tests.support.kubernetes import Server
from tests.support.operator import INSTALLATION, Installed, denied, installation, running
from tests.support.pytorchjobs import job

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.gvr import CONFIG_MAPS, PODS
from torchyard.api.objects import Object
from torchyard.api.queue.crd import definitions
from torchyard.api.queue.names import API_VERSION, QUEUE_NAME
from torchyard.controllers.pytorchjob import JOBS
from torchyard.controllers.queue.gvr import FLAVORS, WORKLOADS
from torchyard.core.queue.kueue_detection import EXTERNAL, IntegrationMode
from torchyard.core.queue.lifecycle import evict
from torchyard.operator import queues
from torchyard.operator.certificates import MUTATING
from torchyard.operator.diagnosis import diagnose_cluster
from torchyard.operator.install import DEFINITIONS

pytestmark = pytest.mark.cluster
WITH_QUEUES = replace(INSTALLATION, queues=True)


@pytest.fixture
async def installed(kube: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installed]:
    monkeypatch.setattr(queues, "CHECK_INTERVAL", 0.2)
    async with installation(kube, WITH_QUEUES) as installed:
        for definition in definitions():
            try:
                await installed.admin.create(DEFINITIONS, definition)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        for definition in definitions():
            name = definition["metadata"]["name"]

            async def established(name: str = name) -> bool:
                return has_true_condition(await installed.admin.get(DEFINITIONS, name), "Established")

            await installed.until(established)
        yield installed
        if await installed.admin.find(MUTATING, "kueue-mutating-webhook-configuration") is not None:
            await installed.admin.delete(MUTATING, "kueue-mutating-webhook-configuration")


async def install_webhooks(installed: Installed, *hooks: str, frameworks: tuple[str, ...] = ()) -> None:
    """Create the configurations by which Kueue is detected; its webhooks are never called."""
    config_map = await installed.admin.find(CONFIG_MAPS, "kueue-manager-config", "kueue-system")
    if config_map is None:
        await installed.namespace("kueue-system")
        metadata = {"name": "kueue-manager-config"}
        await installed.admin.create(CONFIG_MAPS, {"metadata": metadata}, "kueue-system")
    listed = {"frameworks": list(frameworks)} if frameworks else {"externalFrameworks": [EXTERNAL]}
    data = {"controller_manager_config.yaml": json.dumps({"integrations": listed})}
    await installed.admin.patch(CONFIG_MAPS, "kueue-manager-config", {"data": data}, "kueue-system")
    rule = {"apiGroups": ["none.example"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nothing"]}
    service = {"name": "kueue-webhook-service", "namespace": "kueue-system"}
    webhooks = [
        {
            "name": name,
            "clientConfig": {"service": service},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for name in hooks
    ]
    metadata = {"name": "kueue-mutating-webhook-configuration"}
    await installed.admin.create(MUTATING, {"metadata": metadata, "webhooks": webhooks})


def queued(namespace: str, **run: Any) -> Object:
    obj = job(master=1, worker=2, run=run)
    obj["metadata"] = {"name": "train", "namespace": namespace, "labels": {QUEUE_NAME: "theirs"}}
    return obj


async def test_external_mode_starts_and_stops_jobs_with_their_workloads(
    installed: Installed,
) -> None:
    admin, namespace = installed.admin, await installed.namespace("kueue-external")
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", **builders.flavor("fast-nodes", {"kind": "fast"})}
    if await admin.find(FLAVORS, "fast-nodes") is None:
        await admin.create(FLAVORS, flavor)
    await install_webhooks(installed, "mjob.kb.io", "mworkload.kb.io")
    async with running(installed, webhook=True) as operator:

        async def is_external() -> bool:
            return operator.queues.creates_workloads

        await installed.until(is_external)
        created = await admin.create(JOBS, queued(namespace))
        assert created["spec"]["runPolicy"]["suspend"] is True, "it is created suspended"

        async def created_workload() -> Object | None:
            items = (await admin.list(WORKLOADS, namespace)).items
            return items[0] if items else None

        workload = await installed.until(created_workload)
        assert workload["spec"]["queueName"] == "theirs"
        await admit(installed, workload)
        pods = await installed.pods(namespace, 3)
        assert {pod["spec"]["nodeSelector"]["kind"] for pod in pods} == {"fast"}
        admitted = await admin.get(WORKLOADS, workload["metadata"]["name"], namespace)
        evicted = {"status": evict(admitted, "Preempted", "for another workload", 0.0)}
        await admin.patch(WORKLOADS, workload["metadata"]["name"], evicted, namespace, subresource="status")

        async def stopped() -> bool:
            for pod in (await admin.list(PODS, namespace)).items:  # no kubelet deletes them here
                with contextlib.suppress(StatusError):  # gone between the two
                    await admin.delete(PODS, pod["metadata"]["name"], namespace, grace=0)
            current = await admin.get(WORKLOADS, workload["metadata"]["name"], namespace)
            return not current["status"].get("admission")

        await installed.until(stopped)
        assert (await admin.get(JOBS, "train", namespace))["spec"]["runPolicy"]["suspend"] is True
        await admin.delete(JOBS, "train", namespace)

        async def finalizer_removed() -> bool:
            current = await admin.find(WORKLOADS, workload["metadata"]["name"], namespace)
            return current is None or not current["metadata"].get("finalizers")

        await installed.until(finalizer_removed)
        assert not denied(operator)
        assert 'torchyard_operator_queue_mode{mode="external"} 1.0' in operator.metrics.text().decode()
        findings = {check: text for check, _, text in await diagnose_cluster(admin, namespace)}
        assert findings["queues"].startswith("the operator queues PyTorchJobs in Kueue")


async def admit(installed: Installed, workload: Object) -> None:
    assignments = [
        {
            "name": pod_set["name"],
            "count": pod_set["count"],
            "flavors": {"cpu": "fast-nodes"},
            "resourceUsage": {"cpu": "1"},
        }
        for pod_set in workload["spec"]["podSets"]
    ]
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "theirs", "podSetAssignments": assignments}, "conditions": conditions}
    metadata = workload["metadata"]
    await installed.admin.patch(
        WORKLOADS, metadata["name"], {"status": status}, metadata["namespace"], subresource="status"
    )


async def test_built_in_mode_only_honours_suspend(
    installed: Installed,
) -> None:
    admin, namespace = installed.admin, await installed.namespace("kueue-built-in")
    await install_webhooks(installed, "mjob.kb.io", "mpytorchjob.kb.io", frameworks=("kubeflow.org/pytorchjob",))
    async with running(installed, webhook=True) as operator:

        async def is_detected() -> bool:
            return operator.queues.integration.mode is IntegrationMode.BUILT_IN

        await installed.until(is_detected)
        await admin.create(JOBS, queued(namespace, suspend=True))  # as Kueue's webhook does

        async def suspended() -> bool:
            return has_true_condition(await admin.get(JOBS, "train", namespace), "Suspended")

        await installed.until(suspended)
        assert await installed.pods(namespace, 0) == []
        await admin.patch(JOBS, "train", {"spec": {"runPolicy": {"suspend": False}}}, namespace)
        await installed.pods(namespace, 3)
        assert (await admin.list(WORKLOADS, namespace)).items == []
        assert not denied(operator)
        findings = {check: text for check, _, text in await diagnose_cluster(admin, namespace)}
        assert findings["queues"].startswith("Kueue queues PyTorchJobs itself")


async def test_mode_follows_a_kueue_that_is_installed_and_removed(installed: Installed) -> None:
    async with running(installed) as operator:

        async def mode(expected: IntegrationMode) -> bool:
            return (
                operator.queues.integration.mode is expected and operator.queues.integration is not queues.NOT_CHECKED
            )

        await installed.until(lambda: mode(IntegrationMode.NONE))
        await install_webhooks(installed, "mjob.kb.io")
        await installed.until(lambda: mode(IntegrationMode.EXTERNAL))
        await installed.admin.delete(MUTATING, "kueue-mutating-webhook-configuration")
        await installed.until(lambda: mode(IntegrationMode.NONE))
        assert not denied(operator)


async def test_missing_permissions_are_reported_and_disable_the_integration(installed: Installed) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        ref = replace(MUTATING, group="rbac.authorization.k8s.io", plural=kind)
        await installed.admin.delete(ref, "torchyard-operator-queues")
    await install_webhooks(installed, "mjob.kb.io")
    async with running(replace(installed, to=INSTALLATION)) as operator:

        async def reported() -> bool:
            return any("lacks permissions" in reason for reason in operator.queues.integration.reasons)

        await installed.until(reported)
        assert operator.queues.integration.mode is IntegrationMode.NONE
        assert not denied(operator)
