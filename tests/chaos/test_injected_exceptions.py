"""An exception at every point where a controller waits or makes a request: everything still settles."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.chaos.injected_objects import (
    NAMESPACE,
    change_applications,
    create_applications,
    report_progress,
    unsettled_applications,
)
from tests.chaos.injection import Injector, injected_request, injected_watch, task_factory
from tests.support import pytorchjobs, queues, storage
from tests.support.effort import FULL, rounds
from tests.support.scheduling import create_node, running_scheduler
from tests.support.waiting import first_answer

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import (
    CONFIG_MAPS,
    CRON_JOBS,
    ENDPOINT_SLICES,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339_micro
from torchyard.controllers.namespace_objects import ROOT_CA
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, PYTORCHJOBS, WORKLOADS
from torchyard.kube.client import Client
from torchyard.kube.local import LocalTransport
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600 if FULL else 300)]

SETTLE_SECONDS = 90
_AUTOSCALER = (HORIZONTAL_POD_AUTOSCALERS, "scaler", "work")
NODE, LABEL = "machine", {"app": "server"}


@pytest.mark.parametrize("seed", range(rounds(3, 100)))
async def test_exceptions_in_controllers_do_not_change_what_everything_settles_to(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = Injector(seed)
    monkeypatch.setattr(LocalTransport, "request", injected_request(LocalTransport.request, injector))
    monkeypatch.setattr(LocalTransport, "watch", injected_watch(LocalTransport.watch, injector))
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="*", node=False, node_name=NODE)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(task_factory(injector))
    try:
        async with Plane(settings) as plane, running_scheduler(plane), _kubelet(plane.client("kubelet")):
            client = plane.client("test")
            await _create_everything(client)
            await create_applications(client, SETTLE_SECONDS)
            report_progress(plane)
            await _settle(client)
            await change_applications(client)
            await _settle(client, is_changed=True)
            injector.stop()
            await client.delete(JOBS, "queued", "work")
            await first_answer(lambda: _quota_is_free(client), "the release of quota", seconds=SETTLE_SECONDS)
            for namespace in ("work", NAMESPACE):
                await client.delete(NAMESPACES, namespace)
            await _wait_for_end(client, "work", NAMESPACE)
            await first_answer(lambda: _nothing_is_down(plane), "the restart of all parts", seconds=SETTLE_SECONDS)
    finally:
        loop.set_task_factory(None)
    print(f"seed={seed} points={injector.points} exceptions={len(injector.raised)}")
    assert len(injector.raised) > injector.points / 2


async def _settle(client: Client, *, is_changed: bool = False) -> None:
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while unsettled := await _unsettled(client) + await unsettled_applications(client, is_changed=is_changed):
        assert asyncio.get_running_loop().time() < deadline, unsettled
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def _kubelet(client: Client) -> AsyncIterator[None]:
    """A node on which every pod ends well a moment after it was bound, except those that serve."""
    await create_node(client, NODE)
    task = asyncio.create_task(_run_pods(client))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _run_pods(client: Client) -> None:
    while True:
        await _renew_lease(client)
        for pod in (await client.list(PODS)).items:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            with contextlib.suppress(StatusError):
                if "deletionTimestamp" in pod["metadata"]:
                    await client.delete(PODS, name, namespace, uid=pod["metadata"]["uid"], grace=0)
                elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                    await client.patch(PODS, name, {"status": _pod_status(pod)}, namespace, subresource="status")
        await asyncio.sleep(0.05)


async def _renew_lease(client: Client) -> None:
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": to_rfc3339_micro(datetime.now(UTC))}
    try:
        await client.patch(LEASES, NODE, {"spec": spec}, "kube-node-lease")
    except StatusError:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NODE}, "spec": spec}
        await client.create(LEASES, lease, "kube-node-lease")


def _pod_status(pod: Object) -> Object:
    serves = pod["metadata"].get("labels", {}).get("app") == LABEL["app"] or pod["spec"]["restartPolicy"] == "Always"
    container = {"name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "", "restartCount": 0}
    if serves:
        now = to_rfc3339_micro(datetime.now(UTC))[:19] + "Z"
        return {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "containerStatuses": [{**container, "ready": True, "state": {"running": {"startedAt": now}}}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}
    return {
        "phase": "Succeeded",
        "containerStatuses": [{**container, "ready": False, "state": {"terminated": ended}}],
    }


def _template(**spec: object) -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"containers": [container], "restartPolicy": "Never", **spec}}


def _job(name: str, **spec: object) -> Object:
    job_spec = {"completions": 3, "parallelism": 2, "template": _template(), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "work"}, "spec": job_spec}


async def _create_everything(client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}})
    await first_answer(lambda: client.find(SERVICE_ACCOUNTS, "default", "work"), seconds=SETTLE_SECONDS)
    queue_objects: list[tuple[GroupVersionResource, str, Object]] = [
        (FLAVORS, "ResourceFlavor", queues.flavor()),
        (CLUSTER_QUEUES, "ClusterQueue", queues.queue("team", cpu="4")),
        (LOCAL_QUEUES, "LocalQueue", queues.local("q", namespace="work")),
    ]
    for gvr, kind, obj in queue_objects:
        typed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj}
        await client.create(gvr, typed, "work" if gvr is LOCAL_QUEUES else "")
    await client.create(RESOURCE_QUOTAS, _quota(), "work")
    queued = _job("queued", suspend=True)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    for job in (
        _job("plain"),
        _job("indexed", completionMode="Indexed"),
        queued,
        _job("brief", ttlSecondsAfterFinished=1),
    ):
        await client.create(JOBS, job, "work")
    training = pytorchjobs.job("train", worker=2)
    training["metadata"] = {"name": "train", "namespace": "work"}
    await client.create(PYTORCHJOBS, training, "work")
    server = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server", "labels": LABEL}, **_template()}
    await client.create(PODS, server, "work")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}}
    await client.create(SERVICES, {**service, "spec": {"selector": LABEL, "ports": [{"port": 80}]}}, "work")
    await client.create(PERSISTENT_VOLUME_CLAIMS, storage.claim("data", cls=None), "work")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    user = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, **_template(volumes=[volume])}
    await client.create(PODS, user, "work")
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": _template()}}}
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "yearly"}, "spec": cron}
    await client.create(CRON_JOBS, cron_job, "work")
    await _create_what_others_delete(client)
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": storage.claim(cls=None)["spec"]}}}
    writer = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, **_template(volumes=[scratch])}
    await client.create(PODS, writer, "work")
    account = {"kubernetes.io/service-account.name": "default"}
    token = {"metadata": {"name": "token", "annotations": account}, "type": "kubernetes.io/service-account-token"}
    await client.create(SECRETS, token, "work")
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train"}
    autoscaler = {"metadata": {"name": "scaler"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    await client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler, "work")


async def _create_what_others_delete(client: Client) -> None:
    """A pod on a node with a taint, an owner that is deleted after its dependents, and one that leaves them."""
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await client.create(NODES, {"metadata": {"name": "tainted"}, "spec": {"taints": [taint]}})
    evicted = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evicted"}, **_template(nodeName="tainted")}
    await client.create(PODS, evicted, "work")
    for name, propagation in (("front", "Foreground"), ("left", "Orphan")):
        owner = await client.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-owner"}}, "work")
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": f"{name}-owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        metadata = {"name": f"{name}-dependent", "ownerReferences": [reference]}
        await client.create(CONFIG_MAPS, {"metadata": metadata}, "work")
        await client.delete(CONFIG_MAPS, f"{name}-owner", "work", propagation=propagation)


def _quota() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "limit"},
        "spec": {"hard": {"pods": "100", "count/jobs.batch": "50"}},
    }


async def _unsettled(client: Client) -> list[str]:
    """What is not yet as it has to be."""
    jobs = {job["metadata"]["name"]: job for job in (await client.list(JOBS, "work")).items}
    training = await client.get(PYTORCHJOBS, "train", "work")
    claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", "work")
    user = await client.get(PODS, "user", "work")
    quota = await client.get(RESOURCE_QUOTAS, "limit", "work")
    workloads = (await client.list(WORKLOADS, "work")).items
    slices = (await client.list(ENDPOINT_SLICES, "work", labels="kubernetes.io/service-name=server")).items
    addresses = [
        address for piece in slices for endpoint in piece["endpoints"] or () for address in endpoint["addresses"]
    ]
    checks = {
        f"jobs {sorted(jobs)}": set(jobs) == {"plain", "indexed", "queued"},  # the brief one is deleted
        f"training {training.get('status')}": has_true_condition(training, "Succeeded"),
        f"claim {claim['status']}": claim["status"]["phase"] == "Bound",
        f"pod with a claim {user['status']}": user["status"]["phase"] == "Succeeded",
        f"quota {quota.get('status')}": (quota.get("status") or {}).get("used", {}).get("count/jobs.batch") == "3",
        f"workloads {workloads}": [has_true_condition(workload, "Finished") for workload in workloads] == [True],
        f"endpoints {addresses}": addresses == ["10.1.2.3"],
    }
    config_maps = {
        item["metadata"]["name"]: item["metadata"] for item in (await client.list(CONFIG_MAPS, "work")).items
    }
    owned = {name: config_maps[name].get("ownerReferences") for name in sorted(config_maps) if name != ROOT_CA}
    checks[f"owners and dependents {owned}"] = owned == {"left-dependent": None}
    writer, evicted = await client.get(PODS, "writer", "work"), await client.find(PODS, "evicted", "work")
    checks[f"pod with an ephemeral volume {writer['status']}"] = writer["status"]["phase"] == "Succeeded"
    checks[f"pod on a node with a taint {evicted}"] = evicted is None
    secret, scaler = await client.get(SECRETS, "token", "work"), await client.get(*_AUTOSCALER)
    checks[f"token {sorted(secret.get('data') or {})}"] = "token" in (secret.get("data") or {})
    checks[f"autoscaler {scaler.get('status')}"] = bool((scaler.get("status") or {}).get("conditions"))
    for name, job in jobs.items():
        status = job.get("status") or {}
        checks[f"job {name} {status}"] = has_true_condition(job, "Complete") and status.get("succeeded") == 3
    return [description for description, is_met in checks.items() if not is_met]


async def _quota_is_free(client: Client) -> bool:
    queue = await client.get(CLUSTER_QUEUES, "team")
    status = queue.get("status") or {}
    return (status.get("reservingWorkloads"), status.get("admittedWorkloads")) == (0, 0)


async def _wait_for_end(client: Client, *names: str) -> None:
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    for name in names:
        while namespace := await client.find(NAMESPACES, name):
            assert asyncio.get_running_loop().time() < deadline, namespace["status"]
            await asyncio.sleep(0.2)


async def _nothing_is_down(plane: Plane) -> bool:
    return not plane.supervisor.down()
