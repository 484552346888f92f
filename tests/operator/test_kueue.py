"""Our jobs under the real Kueue on a real API server: admitted, evicted, queued again and finished.

The operator reconciles PyTorchJobs, JobSets and TrainJobs, kube-controller-manager reconciles Jobs, and the test is the
kubelet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.kueue.peers import MISSING, has_kueue, kueue_manager
from tests.support import queues as builders
from tests.support.effort import FULL
from tests.support.kubernetes import Kubernetes, Server, has
from tests.support.operator import INSTALLATION, Installed, denied, installation, running
from tests.support.pytorchjobs import job as pytorchjob
from tests.support.pytorchjobs import replica

from torchyard.api.conditions import has_true_condition
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS as BATCH_JOBS
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.queue.names import API_VERSION, QUEUE_NAME
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.pytorchjob import JOBS
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, PRIORITY_CLASSES, WORKLOADS
from torchyard.controllers.trainjob import RUNTIMES, TRAINJOBS
from torchyard.core.queue.kueue_detection import EXTERNAL, IntegrationMode
from torchyard.operator import queues

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FULL, reason="a control plane with Kueue of its own: TORCHYARD_TESTS=full"),
    pytest.mark.skipif(not has_kueue() or not has("kube-controller-manager"), reason=MISSING),
]
WITH_QUEUES = replace(INSTALLATION, queues=True)
_PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
_CONTROLLERS = ("garbage-collector", "namespace", "serviceaccount", "root-ca-certificate-publisher", "job")
_EXTERNAL_FRAMEWORKS = {"integrations": {"frameworks": ["batch/job"], "externalFrameworks": [EXTERNAL]}}
_REQUESTS = {"resources": {"requests": {"cpu": "1"}}}
_CONTAINER = {"name": "main", "image": "busybox", **_REQUESTS}
_TOLERATION = {"key": "fast", "operator": "Exists"}
_SECONDS = 180.0


@pytest.fixture(scope="module", params=["built-in", "external"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A control plane with Kueue, and whether Kueue creates the Workloads of PyTorchJobs, or the operator."""
    directory = tmp_path_factory.mktemp("kueue")
    controllers = ",".join(f"{name}-controller" for name in _CONTROLLERS)
    configuration = _EXTERNAL_FRAMEWORKS if request.param == "external" else None
    with Kubernetes(directory / "kube", controllers=controllers) as server:
        asyncio.run(_install(server))
        with kueue_manager(server, directory, configuration=configuration) as state:
            metadata = {"name": "kueue-manager-config"}
            data = {"controller_manager_config.yaml": (state / "config.json").read_text()}
            server.admin.post("/api/v1/namespaces/kueue-system/configmaps", {"metadata": metadata, "data": data})
            yield server, request.param


async def _install(server: Server) -> None:
    """Before Kueue starts, which looks for the definitions of the jobs."""
    async with installation(server, WITH_QUEUES):
        pass


@pytest.fixture
def mode(cluster: tuple[Server, str]) -> str:
    return cluster[1]


@pytest.fixture
async def installed(cluster: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installed]:
    monkeypatch.setattr(queues, "CHECK_INTERVAL", 0.2)
    async with installation(cluster[0], WITH_QUEUES) as installed:
        yield installed


def _pytorchjob() -> Object:
    return pytorchjob(master=replica(container=_REQUESTS), worker=replica(2, container=_REQUESTS))


def _elastic() -> Object:
    """It needs two workers, and takes up to four."""
    policy = {"minReplicas": 2, "maxReplicas": 4}
    return pytorchjob(master=None, worker=replica(3, container=_REQUESTS), elasticPolicy=policy)


def _job() -> Object:
    pod = {"containers": [_CONTAINER], "restartPolicy": "Never"}
    spec = {"parallelism": 3, "completions": 3, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}


def _jobset() -> Object:
    replicated = {"name": "workers", "replicas": 3, "template": {"spec": {"template": _job()["spec"]["template"]}}}
    return {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "spec": {"replicatedJobs": [replicated]}}


def _trainjob() -> Object:
    trainer = {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "1"}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "spec": spec}


KINDS: dict[str, tuple[GroupVersionResource, Callable[[], Object]]] = {
    "pytorchjob": (JOBS, _pytorchjob),
    "elastic": (JOBS, _elastic),
    "job": (BATCH_JOBS, _job),
    "jobset": (JOBSETS, _jobset),
    "trainjob": (TRAINJOBS, _trainjob),
}
# Kueue takes no reclaimable pods from PyTorchJobs, and from JobSets and TrainJobs those of whole Jobs. Here a JobSet
# has three Jobs of one pod, a TrainJob one of three.
_RECLAIMS = ("job", "jobset")


class Queue:
    """A namespace with a queue of three cpus on fast nodes."""

    def __init__(self, installed: Installed, namespace: str) -> None:
        self.installed, self.admin, self.namespace = installed, installed.admin, namespace

    async def set_up(self) -> None:
        await self.installed.namespace(self.namespace)
        taint = {"key": "fast", "value": "yes", "effect": "NoSchedule"}
        flavor = builders.flavor("fast", {"kind": "fast"}, nodeTaints=[taint], tolerations=[_TOLERATION])
        group = builders.group(("fast", [builders.quota("cpu", "3")]))
        preemption = {"withinClusterQueue": "LowerPriority"}
        objects: list[tuple[GroupVersionResource, str, Object]] = [
            (FLAVORS, "ResourceFlavor", flavor),
            (PRIORITY_CLASSES, "WorkloadPriorityClass", {"metadata": {"name": "low"}, "value": 1}),
            (PRIORITY_CLASSES, "WorkloadPriorityClass", {"metadata": {"name": "high"}, "value": 2}),
            (CLUSTER_QUEUES, "ClusterQueue", builders.queue(self.namespace, group, preemption=preemption)),
            (LOCAL_QUEUES, "LocalQueue", builders.local("q", self.namespace, self.namespace)),
        ]
        for ref, kind, obj in objects:
            namespace = obj["metadata"].get("namespace", "")
            if await self.admin.find(ref, obj["metadata"]["name"], namespace) is None:
                await self.admin.create(ref, {"apiVersion": API_VERSION, "kind": kind, **obj}, namespace)

    async def create(self, kind: str, name: str, priority: str) -> Object:
        ref, manifest = KINDS[kind]
        labels = {QUEUE_NAME: "q", _PRIORITY_CLASS: priority}
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        return await self.admin.create(ref, {**manifest(), "metadata": metadata})

    async def pods(self, name: str, count: int) -> list[Object]:
        """Wait until a job has this number of pods that have not ended."""

        async def reached() -> list[Object] | None:
            pods = [
                pod
                for pod in (await self.admin.list(PODS, self.namespace)).items
                if pod["metadata"]["name"].startswith(f"{name}-")
                and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
                and not pod["metadata"].get("deletionTimestamp")
            ]
            return [*pods, {}] if len(pods) == count else None  # a list that is not empty

        pods: list[Object] = await self.installed.until(reached, seconds=_SECONDS)
        return pods[:-1]

    async def complete(self, pods: list[Object]) -> None:
        for pod in pods:
            state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
            container = pod["spec"]["containers"][0]
            entry = {"name": container["name"], "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
            status = {"phase": "Succeeded", "containerStatuses": [{**entry, "state": state}]}
            name = pod["metadata"]["name"]
            await self.admin.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    async def workload(self, job: str, condition: Callable[[Object], Any]) -> Object:
        """Wait for a condition of the Workload of a job."""

        async def reached() -> Object | None:
            for workload in (await self.admin.list(WORKLOADS, self.namespace)).items:
                owners = [owner["name"] for owner in workload["metadata"].get("ownerReferences") or ()]
                if job in owners and condition(workload):
                    return workload
            return None

        workload: Object = await self.installed.until(reached, seconds=_SECONDS)
        return workload


def _on_fast_nodes(pods: list[Object]) -> bool:
    return all(
        pod["spec"]["nodeSelector"]["kind"] == "fast" and _TOLERATION in pod["spec"]["tolerations"] for pod in pods
    )


def _without_suspend(job: Object) -> Object:
    spec: Object = json.loads(json.dumps(job["spec"]))
    spec.pop("suspend", None)
    spec.get("runPolicy", {}).pop("suspend", None)
    for patch in spec.get("runtimePatches") or ():
        patch.pop("time", None)  # when Kueue wrote its patch, which is empty outside an admission
    return spec


def _is_suspended(job: Object) -> bool:
    run_policy = job["spec"].get("runPolicy") or {}
    return bool(job["spec"].get("suspend") or run_policy.get("suspend"))


@pytest.mark.parametrize("kind", KINDS)
async def test_job_is_admitted_evicted_queued_again_and_finished(installed: Installed, mode: str, kind: str) -> None:
    if mode == "external" and kind not in ("pytorchjob", "elastic"):
        pytest.skip("the external integration is about PyTorchJobs")
    ref, _ = KINDS[kind]
    queue = Queue(installed, f"{mode}-{kind}")
    await queue.set_up()
    admin, namespace = installed.admin, queue.namespace
    async with running(installed, webhook=True) as operator:
        await installed.until(lambda: _detected(operator, mode))
        await installed.until(lambda: admin.find(RUNTIMES["ClusterTrainingRuntime"], "torch-distributed"))

        created = await queue.create(kind, "first", "low")
        assert _is_suspended(created)
        assert _on_fast_nodes(await queue.pods("first", 3))
        workload = await queue.workload("first", lambda obj: has_true_condition(obj, "Admitted"))
        assert workload["spec"]["priority"] == 1
        assert not _is_suspended(await admin.get(ref, "first", namespace))

        await queue.create("job", "second", "high")
        await queue.workload("first", lambda obj: has_true_condition(obj, "Preempted"))
        await queue.pods("first", 0)
        assert _on_fast_nodes(await queue.pods("second", 3))
        await queue.workload("first", lambda obj: not has_true_condition(obj, "QuotaReserved"))
        evicted = await admin.get(ref, "first", namespace)
        assert _is_suspended(evicted)
        assert _without_suspend(evicted) == _without_suspend(created), "the pod templates are restored"

        await queue.complete(await queue.pods("second", 3))
        await queue.workload("second", lambda obj: has_true_condition(obj, "Finished"))
        pods = await queue.pods("first", 3)
        assert _on_fast_nodes(pods)
        if kind in _RECLAIMS:
            await queue.complete(pods[:1])
            await queue.workload("first", lambda obj: _reclaimable(obj) == 1)
        await queue.complete(await queue.pods("first", 2 if kind in _RECLAIMS else 3))
        await queue.workload("first", lambda obj: has_true_condition(obj, "Finished"))
        assert not denied(operator)


async def _detected(operator: Any, mode: str) -> bool:
    expected = IntegrationMode.EXTERNAL if mode == "external" else IntegrationMode.BUILT_IN
    return operator.queues.integration.mode is expected


def _reclaimable(workload: Object) -> int:
    return sum(entry["count"] for entry in workload["status"].get("reclaimablePods") or ())


async def test_an_elastic_job_starts_with_the_workers_that_fit(installed: Installed, mode: str) -> None:
    if mode == "built-in":
        pytest.skip("Kueue's own integration starts all workers or none")
    queue = Queue(installed, "external-partial")
    await queue.set_up()
    async with running(installed, webhook=True) as operator:
        await installed.until(lambda: _detected(operator, mode))
        group = builders.group(("fast", [builders.quota("cpu", "2")]))
        patch = {"spec": {"resourceGroups": [group]}}
        await installed.admin.patch(CLUSTER_QUEUES, queue.namespace, patch)
        await queue.create("elastic", "small", "low")
        assert len(await queue.pods("small", 2)) == 2
        workload = await queue.workload("small", lambda obj: has_true_condition(obj, "Admitted"))
        assert workload["status"]["admission"]["podSetAssignments"][0]["count"] == 2
