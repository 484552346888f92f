"""JobSets in queues: suspended until their pods have quota, started on the flavor's nodes, restored when they stop."""

from __future__ import annotations

from tests.controllers.queue.conftest import Cluster
from tests.support import queues

from torchyard.api.errors import StatusError
from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import JOBSETS, WORKLOADS


def jobset(name: str, queue: str = "q") -> Object:
    pod = {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]}
    workers = {"parallelism": 3, "completions": 2, "template": {"spec": pod}}
    replicated = [
        {"name": "driver", "template": {"spec": {"template": {"spec": pod}}}},
        {"name": "workers", "replicas": 2, "template": {"spec": workers}},
    ]
    metadata = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}}
    body = {"metadata": metadata, "spec": {"replicatedJobs": replicated}}
    return {"apiVersion": JOBSETS.api_version, "kind": "JobSet", **body}


async def test_jobset_is_admitted_with_all_pods_started_and_restored(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=5, flavor=queues.flavor("default", {"kind": "fast"}))
    created = await cluster.client.create(JOBSETS, jobset("train"))
    assert created["spec"]["suspend"] is True
    started = await cluster.running("train", gvr=JOBSETS)
    workload = await cluster.workload("train")
    assert workload is not None
    pod_sets = [(pod_set["name"], pod_set["count"]) for pod_set in workload["spec"]["podSets"]]
    assert pod_sets == [("driver", 1), ("workers", 4)]
    assert workload["metadata"]["name"].startswith("jobset-train-")
    for replicated_job in started["spec"]["replicatedJobs"]:
        assert replicated_job["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"kind": "fast"}

    async def jobs_run_there() -> bool:
        jobs = (await cluster.client.list(JOBS, "default")).items
        selectors = [job["spec"]["template"]["spec"].get("nodeSelector") for job in jobs if not job["spec"]["suspend"]]
        return selectors == [{"kind": "fast"}] * 3

    await cluster.until(jobs_run_there, "the Jobs")
    await cluster.client.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}}, "default")
    await cluster.running("train", is_running=False, gvr=JOBSETS)

    async def restored() -> bool:
        job = await cluster.client.get(JOBSETS, "train", "default")
        return bool(job["spec"]["replicatedJobs"] == created["spec"]["replicatedJobs"])

    await cluster.until(restored, "the old templates")


async def test_running_jobset_cannot_change_its_queue(cluster: Cluster) -> None:
    await cluster.with_queue(cpu=5)
    await cluster.client.create(JOBSETS, jobset("train"))
    await cluster.running("train", gvr=JOBSETS)
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    try:
        await cluster.client.patch(JOBSETS, "train", patch, "default")
    except StatusError as error:
        assert error.status == 422
    else:
        raise AssertionError("a running JobSet changed its queue")
