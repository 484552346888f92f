"""What two want at once: a name that a hash gives, or the last disruption of a budget; and revisions in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.controllers.workload.histories import CLAIM, template, workload
from tests.controllers.workload.runner import namespace
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.gvr import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from torchyard.api.objects import Object
from torchyard.core.workload.deployment_replicasets import make_replica_set
from torchyard.core.workload.deployment_view import DeploymentView
from torchyard.core.workload.revisions import make_revision
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

SECONDS = 60.0


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, node=False)) as plane:
        yield plane.client("test")


async def _stored(client: Client, kind: str) -> Object:
    """A workload with its defaults, which no controller has seen."""
    refs = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}
    return await client.create(refs[kind], workload(kind, replicas=1)[1], "taken", dry_run=True)


async def test_a_deployment_whose_replica_set_name_is_taken_gets_another_hash(client: Client) -> None:
    await namespace(client, "taken")
    preview = await _stored(client, "Deployment")
    name = make_replica_set(DeploymentView(preview, (), (), datetime.now(UTC)), [])["metadata"]["name"]
    other = {"selector": {"matchLabels": {"app": "other"}}, "template": template(app="other"), "replicas": 0}
    await client.create(REPLICA_SETS, {"metadata": {"name": name}, "spec": other}, "taken")
    await client.create(DEPLOYMENTS, workload("Deployment", replicas=1)[1], "taken")

    async def count() -> int:
        return int(((await client.get(DEPLOYMENTS, "web", "taken")).get("status") or {}).get("collisionCount") or 0)

    assert await first_answer(count, "the collision", seconds=SECONDS) == 1

    async def pods() -> list[Object]:
        return (await client.list(PODS, "taken", labels="app=web")).items

    assert len(await first_answer(pods, "a pod", seconds=SECONDS)) == 1


async def test_a_stateful_set_whose_revision_name_is_taken_gets_another_hash(client: Client) -> None:
    await namespace(client, "taken")
    preview = await _stored(client, "StatefulSet")
    name = make_revision(preview, STATEFUL_SETS, "StatefulSet", 1, 0)["metadata"]["name"]
    revision = {"metadata": {"name": name}, "data": {"other": True}, "revision": 1}
    await client.create(CONTROLLER_REVISIONS, revision, "taken")
    await client.create(STATEFUL_SETS, workload("StatefulSet", replicas=1)[1], "taken")

    async def status() -> Object | None:
        current = (await client.get(STATEFUL_SETS, "web", "taken")).get("status") or {}
        return current if current.get("updateRevision") else None

    current = await first_answer(status, "the status", seconds=SECONDS)
    assert current["collisionCount"] == 1
    assert current["updateRevision"] != name


async def test_evictions_at_once_share_the_disruptions_of_a_budget(client: Client) -> None:
    """Only one of two evictions may take the last disruption."""
    await namespace(client, "taken")
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2}
    for number in range(3):
        metadata = {"name": f"p{number}", "labels": {"app": "web"}}
        await client.create(PODS, {"metadata": metadata, "spec": template()["spec"]}, "taken")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(PODS, f"p{number}", {"status": ready}, "taken", subresource="status")
    await client.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "taken")

    async def allowed() -> int:
        budget = await client.get(POD_DISRUPTION_BUDGETS, "b", "taken")
        return int((budget.get("status") or {}).get("disruptionsAllowed") or 0)

    assert await first_answer(allowed, "an allowed disruption", seconds=SECONDS) == 1

    async def evict(name: str) -> int:
        try:
            await client.create(PODS, {"metadata": {"name": name}}, "taken", name=name, subresource="eviction")
        except StatusError as error:
            return error.status
        return 201

    assert sorted(await asyncio.gather(*(evict(f"p{number}") for number in range(3)))) == [201, 429, 429]


async def test_a_stateful_set_waits_for_the_claim_of_an_earlier_pod_to_go(client: Client) -> None:
    """The claim is still there when the pod is wanted again; it would be deleted under the new pod."""
    await namespace(client, "taken")
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    stateful = workload(
        "StatefulSet", replicas=0, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy
    )[1]
    gone = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "00000000-0000-0000-0000-000000000000"}
    metadata = {"name": "data-web-0", "ownerReferences": [gone], "finalizers": ["example.com/slow"]}
    await client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": CLAIM["spec"]}, "taken")
    await client.create(STATEFUL_SETS, stateful, "taken")
    await client.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 1}}, "taken")

    async def observed() -> bool:
        current = await client.get(STATEFUL_SETS, "web", "taken")
        return bool((current.get("status") or {}).get("observedGeneration") == current["metadata"]["generation"])

    await first_answer(observed, "the new size observed", seconds=SECONDS)
    assert (await client.list(PODS, "taken")).items == []
    await client.patch(PERSISTENT_VOLUME_CLAIMS, "data-web-0", {"metadata": {"finalizers": None}}, "taken")

    async def owners() -> list[Object]:
        claim = await client.find(PERSISTENT_VOLUME_CLAIMS, "data-web-0", "taken")
        pods = (await client.list(PODS, "taken")).items
        return pods if claim is not None and not claim["metadata"].get("ownerReferences") else []

    assert [pod["metadata"]["name"] for pod in await first_answer(owners, "the pod", seconds=SECONDS)] == ["web-0"]


async def _revisions(client: Client, daemon_set: str) -> list[Object]:
    return (await client.list(CONTROLLER_REVISIONS, "taken", labels=f"app={daemon_set}")).items


async def _daemon_set(client: Client, name: str, **metadata: object) -> Object:
    """Returns its only revision."""
    pods = template(app=name)
    daemon_set = workload("DaemonSet", name=name, replicas=None, pods=pods)[1]
    await client.create(DAEMON_SETS, {**daemon_set, "metadata": {**daemon_set["metadata"], **metadata}}, "taken")
    (revision,) = await first_answer(lambda: _revisions(client, name), "a revision", seconds=SECONDS)
    return revision


async def test_a_daemon_set_restores_the_hash_label_of_its_revision(client: Client) -> None:
    """As upstream, from the revision's name."""
    await namespace(client, "taken")
    name = (await _daemon_set(client, "web"))["metadata"]["name"]
    label = "controller-revision-hash"
    await client.patch(CONTROLLER_REVISIONS, name, {"metadata": {"labels": {label: None}}}, "taken")
    await client.patch(DAEMON_SETS, "web", {"metadata": {"annotations": {"again": "yes"}}}, "taken")

    async def hash_() -> str | None:
        metadata = (await client.get(CONTROLLER_REVISIONS, name, "taken"))["metadata"]
        return (metadata.get("labels") or {}).get(label)

    assert await first_answer(hash_, "the label", seconds=SECONDS) == name


async def test_a_daemon_set_that_is_being_deleted_gets_no_new_revision(client: Client) -> None:
    await namespace(client, "taken")
    await _daemon_set(client, "web", finalizers=["example.com/slow"])
    await client.delete(DAEMON_SETS, "web", "taken", propagation="Foreground")

    async def is_gone() -> bool:
        return not await _revisions(client, "web")

    await first_answer(is_gone, "the revision gone", seconds=SECONDS)
    await client.patch(DAEMON_SETS, "web", {"metadata": {"annotations": {"again": "yes"}}}, "taken")
    await _daemon_set(client, "later")
    assert await is_gone()
