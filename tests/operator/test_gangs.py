"""PodGroups of the two gang schedulers on a real API server, with the role that an installation grants."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.operator import INSTALLATION, Installed, denied, installation, running, started
from tests.support.pytorchjobs import job, replica

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import EVENTS, PODS
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import messages
from torchyard.controllers.pytorchjob import JOBS, PLUGIN_GROUPS, VOLCANO_GROUPS
from torchyard.operator.install import DEFINITIONS

pytestmark = pytest.mark.cluster
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "format": "int32"}
_AMOUNTS = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, _TEXT], "x-kubernetes-int-or-string": True},
}
# The fields of a PodGroup for each scheduler; a field that is not listed would be dropped.
_SPECS = {
    VOLCANO_GROUPS: {"minMember": _NUMBER, "minResources": _AMOUNTS, "queue": _TEXT, "priorityClassName": _TEXT},
    PLUGIN_GROUPS: {"minMember": _NUMBER, "minResources": _AMOUNTS, "scheduleTimeoutSeconds": _NUMBER},
}


async def _define(installed: Installed, ref: GroupVersionResource) -> None:
    phase = {"type": "object", "properties": {"phase": _TEXT}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": _SPECS[ref]}, "status": phase}}
    version = {
        "name": ref.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{ref.plural}.{ref.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": ref.group,
            "names": {"kind": "PodGroup", "plural": ref.plural, "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    try:
        await installed.admin.create(DEFINITIONS, definition)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise

    async def served() -> bool:
        return has_true_condition(await installed.admin.get(DEFINITIONS, f"{ref.plural}.{ref.group}"), "Established")

    await installed.until(served)


def train(namespace: str, **policy: Any) -> Object:
    asks = {"resources": {"requests": {"cpu": "500m"}}}
    manifest = job(
        master=replica(1, container=asks), worker=replica(2, container=asks), run={"schedulingPolicy": policy}
    )
    manifest["metadata"] = {"name": "train", "namespace": namespace}
    return manifest


async def _finish(installed: Installed, namespace: str) -> None:
    await installed.admin.patch(
        PODS, "train-master-0", {"status": {"phase": "Succeeded"}}, namespace, subresource="status"
    )

    async def succeeded() -> bool:
        return has_true_condition(await installed.admin.get(JOBS, "train", namespace), "Succeeded")

    await installed.until(succeeded)


async def _group(installed: Installed, ref: GroupVersionResource, namespace: str, *, exists: bool = True) -> Object:
    async def reached() -> Object | None:
        group = await installed.admin.find(ref, "train", namespace)
        return group if exists else {} if group else {"gone": True}

    answer: Object = await installed.until(reached)
    return answer


async def test_volcano_admits_the_pod_group_before_any_pod_is_created(kube: Server) -> None:
    async with installation(kube, replace(INSTALLATION, gang_scheduler="volcano")) as installed:
        await _define(installed, VOLCANO_GROUPS)
        namespace = await installed.namespace("volcano")
        async with running(installed, gang_scheduler="volcano") as operator:
            await installed.admin.create(JOBS, train(namespace, minAvailable=2, queue="research", priorityClass="high"))
            group = await _group(installed, VOLCANO_GROUPS, namespace)
            wanted = {"minMember": 2, "minResources": {"cpu": "1"}, "queue": "research", "priorityClassName": "high"}
            assert group["spec"] == wanted
            assert await installed.pods(namespace, 0) == []
            patch = {"status": {"phase": "Inqueue"}}
            await installed.admin.patch(VOLCANO_GROUPS, "train", patch, namespace, subresource="status")
            for pod in await installed.pods(namespace, 3):
                assert pod["spec"]["schedulerName"] == "volcano"
                assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "train"
            await _finish(installed, namespace)
            await _group(installed, VOLCANO_GROUPS, namespace, exists=False)
            assert not denied(operator)


async def test_scheduler_plugins_get_pods_at_once(kube: Server) -> None:
    async with installation(kube, replace(INSTALLATION, gang_scheduler="plugins")) as installed:
        await _define(installed, PLUGIN_GROUPS)
        namespace = await installed.namespace("plugins")
        async with running(installed, gang_scheduler="plugins") as operator:
            await installed.admin.create(JOBS, train(namespace, scheduleTimeoutSeconds=30))
            for pod in await installed.pods(namespace, 3):
                assert pod["spec"]["schedulerName"] == "plugins"
                assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "train"
            group = await _group(installed, PLUGIN_GROUPS, namespace)
            assert group["spec"] == {"minMember": 3, "minResources": {"cpu": "1500m"}, "scheduleTimeoutSeconds": 30}
            patch = {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}}
            await installed.admin.patch(JOBS, "train", patch, namespace)

            async def follows() -> bool:
                group = await installed.admin.get(PLUGIN_GROUPS, "train", namespace)
                return bool(group["spec"]["minMember"] == 2)

            await installed.until(follows)
            await _finish(installed, namespace)
            await _group(installed, PLUGIN_GROUPS, namespace, exists=False)
            await _u12_another_scheduler_stays(installed, namespace)
            assert not denied(operator)


async def _u12_another_scheduler_stays(installed: Installed, namespace: str) -> None:
    """A template that names a scheduler keeps it, with an event that the gang scheduler will not see it."""
    alone = job("other", master=replica(1, spec={"schedulerName": "mine"}), worker=None)
    alone["metadata"] = {"name": "other", "namespace": namespace}
    await installed.admin.create(JOBS, alone)
    pod = await installed.until(lambda: installed.admin.find(PODS, "other-master-0", namespace))
    assert pod["spec"]["schedulerName"] == "mine"

    async def event_recorded() -> bool:
        events = (await installed.admin.list(EVENTS, namespace)).items
        return any(event["reason"] == messages.SCHEDULER_SET for event in events)

    await installed.until(event_recorded)


async def test_without_the_schedulers_crd_the_operator_waits_and_names_it(kube: Server) -> None:
    async with installation(kube, replace(INSTALLATION, gang_scheduler="volcano")) as installed:
        name = f"{VOLCANO_GROUPS.plural}.{VOLCANO_GROUPS.group}"
        if await installed.admin.find(DEFINITIONS, name) is not None:
            await installed.admin.delete(DEFINITIONS, name)

        async def gone() -> bool:
            return await installed.admin.find(DEFINITIONS, name) is None

        await installed.until(gone)
        operator = started(installed, gang_scheduler="volcano")
        task = asyncio.create_task(operator.run())

        async def complains() -> bool:
            return "does not serve podgroups of scheduling.volcano.sh/v1beta1" in operator.health.problem

        await installed.until(complains)
        assert not task.done()
        await _define(installed, VOLCANO_GROUPS)

        async def ready() -> bool:
            return not operator.health.problem

        await installed.until(ready)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.25)
