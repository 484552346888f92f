"""The operator beside a Kueue: its kinds on a real API server, its webhooks by name, and the test as its manager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support import queues as made_of
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
    async with installation(kube, WITH_QUEUES) as found:
        for one in definitions():
            try:
                await found.admin.create(DEFINITIONS, one)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        for one in definitions():
            name = one["metadata"]["name"]

            async def established(name: str = name) -> bool:
                return has_true_condition(await found.admin.get(DEFINITIONS, name), "Established")

            await found.until(established)
        yield found
        if await found.admin.find(MUTATING, "kueue-mutating-webhook-configuration") is not None:
            await found.admin.delete(MUTATING, "kueue-mutating-webhook-configuration")


async def kueue(installed: Installed, *hooks: str) -> None:
    """Its webhooks, by which it is known; they lead nowhere, and nothing leads to them."""
    place = await installed.admin.find(CONFIG_MAPS, "kueue-manager-config", "kueue-system")
    if place is None:
        await installed.namespace("kueue-system")
        settings = f"integrations:\n  externalFrameworks:\n  - {EXTERNAL}\n"
        data = {"controller_manager_config.yaml": settings}
        await installed.admin.create(
            CONFIG_MAPS, {"metadata": {"name": "kueue-manager-config"}, "data": data}, "kueue-system"
        )
    rule = {"apiGroups": ["nobody.example"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nothing"]}
    service = {"name": "kueue-webhook-service", "namespace": "kueue-system"}
    found = [
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
    await installed.admin.create(MUTATING, {"metadata": metadata, "webhooks": found})


def queued(namespace: str, **run: Any) -> Object:
    made = job(master=1, worker=2, run=run)
    made["metadata"] = {"name": "train", "namespace": namespace, "labels": {QUEUE_NAME: "theirs"}}
    return made


async def test_external_mode_starts_and_stops_jobs_with_their_workloads(
    installed: Installed,
) -> None:
    admin, namespace = installed.admin, await installed.namespace("kueue-external")
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", **made_of.flavor("fast-nodes", {"kind": "fast"})}
    if await admin.find(FLAVORS, "fast-nodes") is None:
        await admin.create(FLAVORS, flavor)
    await kueue(installed, "mjob.kb.io", "mworkload.kb.io")
    async with running(installed, webhook=True) as operator:

        async def ours() -> bool:
            return operator.queues.creates_workloads

        await installed.until(ours)
        made = await admin.create(JOBS, queued(namespace))
        assert made["spec"]["runPolicy"]["suspend"] is True, "it waits from its first moment on"

        async def composed() -> Object | None:
            items = (await admin.list(WORKLOADS, namespace)).items
            return items[0] if items else None

        workload = await installed.until(composed)
        assert workload["spec"]["queueName"] == "theirs"
        await admit(installed, workload)
        pods = await installed.pods(namespace, 3)
        assert {pod["spec"]["nodeSelector"]["kind"] for pod in pods} == {"fast"}
        admitted = await admin.get(WORKLOADS, workload["metadata"]["name"], namespace)
        gone = {"status": evict(admitted, "Preempted", "for somebody else", 0.0)}
        await admin.patch(WORKLOADS, workload["metadata"]["name"], gone, namespace, subresource="status")

        async def stopped() -> bool:
            for pod in (await admin.list(PODS, namespace)).items:  # no kubelet lets them go here
                with contextlib.suppress(StatusError):  # gone between the two
                    await admin.delete(PODS, pod["metadata"]["name"], namespace, grace=0)
            found = await admin.get(WORKLOADS, workload["metadata"]["name"], namespace)
            return not found["status"].get("admission")

        await installed.until(stopped)
        assert (await admin.get(JOBS, "train", namespace))["spec"]["runPolicy"]["suspend"] is True
        await admin.delete(JOBS, "train", namespace)

        async def let_go() -> bool:
            found = await admin.find(WORKLOADS, workload["metadata"]["name"], namespace)
            return found is None or not found["metadata"].get("finalizers")

        await installed.until(let_go)
        assert not denied(operator)
        assert 'torchyard_operator_queue_mode{mode="external"} 1.0' in operator.metrics.text().decode()
        said = {what: words for what, _, words in await diagnose_cluster(admin, namespace)}
        assert said["queues"].startswith("the operator brings jobs into Kueue's queues")


async def admit(installed: Installed, workload: Object) -> None:
    sets = [
        {"name": one["name"], "count": one["count"], "flavors": {"cpu": "fast-nodes"}, "resourceUsage": {"cpu": "1"}}
        for one in workload["spec"]["podSets"]
    ]
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "theirs", "podSetAssignments": sets}, "conditions": conditions}
    metadata = workload["metadata"]
    await installed.admin.patch(
        WORKLOADS, metadata["name"], {"status": status}, metadata["namespace"], subresource="status"
    )


async def test_built_in_mode_only_honours_suspend(
    installed: Installed,
) -> None:
    admin, namespace = installed.admin, await installed.namespace("kueue-built-in")
    await kueue(installed, "mjob.kb.io", "mpytorchjob.kb.io")
    async with running(installed, webhook=True) as operator:

        async def seen() -> bool:
            return operator.queues.integration.mode is IntegrationMode.BUILT_IN

        await installed.until(seen)
        await admin.create(JOBS, queued(namespace, suspend=True))  # as Kueue's webhook has it

        async def suspended() -> bool:
            return has_true_condition(await admin.get(JOBS, "train", namespace), "Suspended")

        await installed.until(suspended)
        assert await installed.pods(namespace, 0) == []
        await admin.patch(JOBS, "train", {"spec": {"runPolicy": {"suspend": False}}}, namespace)
        await installed.pods(namespace, 3)
        assert (await admin.list(WORKLOADS, namespace)).items == []
        assert not denied(operator)
        said = {what: words for what, _, words in await diagnose_cluster(admin, namespace)}
        assert said["queues"].startswith("Kueue brings jobs into its queues itself")


async def test_mode_follows_a_kueue_that_is_installed_and_removed(installed: Installed) -> None:
    async with running(installed) as operator:

        async def mode(wanted: IntegrationMode) -> bool:
            return operator.queues.integration.mode is wanted and operator.queues.integration is not queues.NOT_CHECKED

        await installed.until(lambda: mode(IntegrationMode.NONE))
        await kueue(installed, "mjob.kb.io")
        await installed.until(lambda: mode(IntegrationMode.EXTERNAL))
        await installed.admin.delete(MUTATING, "kueue-mutating-webhook-configuration")
        await installed.until(lambda: mode(IntegrationMode.NONE))
        assert not denied(operator)


async def test_missing_permissions_are_reported_and_disable_the_integration(installed: Installed) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        ref = replace(MUTATING, group="rbac.authorization.k8s.io", plural=kind)
        await installed.admin.delete(ref, "torchyard-operator-queues")
    await kueue(installed, "mjob.kb.io")
    async with running(replace(installed, to=INSTALLATION)) as operator:

        async def told() -> bool:
            return any("may not" in one for one in operator.queues.integration.reasons)

        await installed.until(told)
        assert operator.queues.integration.mode is IntegrationMode.NONE
        assert not denied(operator)
